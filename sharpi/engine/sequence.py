"""One sequence's tokens and its pages in the KV cache."""

from collections.abc import Sequence as Ids

import numpy as np
import numpy.typing as npt

from sharpi.engine.runner import Runner
from sharpi.errors import ContextFullError
from sharpi.ops.kv_cache import PAGE_POSITIONS

_NO_OUTPUTS = np.zeros(0, np.int32)


class Sequence:
    """Tokens whose keys and values are cached; grows by `extend`, shrinks by `truncate`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pages = np.zeros(-(-runner.context_size // PAGE_POSITIONS), np.int32)
        self._num_pages = 0
        self.tokens: list[int] = []

    @property
    def capacity(self) -> int:
        """Tokens that fit in all."""
        return self._runner.context_size

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self._runner.context_size - len(self.tokens)

    def shared_prefix(self, ids: Ids[int]) -> int:
        """How many leading tokens of `ids` are cached already."""
        count = 0
        for cached, wanted in zip(self.tokens, ids, strict=False):
            if cached != wanted:
                break
            count += 1
        return count

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on and returns their pages."""
        del self.tokens[length:]
        kept = -(-length // PAGE_POSITIONS)
        if kept < self._num_pages:
            self._runner.pages.give_back(self._pages[kept : self._num_pages].tolist())
            self._num_pages = kept

    def extend(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends tokens, batch by batch; logits (vocabulary,) after the last, a passing view.

        Raises ContextFullError when they do not fit, before anything is computed.
        """
        self._reserve(len(ids))
        batch = self._runner.batch_size
        for start in range(0, len(ids), batch):
            part = ids[start : start + batch]
            last = start + batch >= len(ids)
            logits = self._forward(
                part, np.array([len(part) - 1], np.int32) if last else _NO_OUTPUTS
            )
        return np.asarray(logits[0])

    def extend_scored(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends tokens and gives the logits (tokens, vocabulary) after each of them."""
        self._reserve(len(ids))
        batch = self._runner.scoring_batch
        parts = [ids[i : i + batch] for i in range(0, len(ids), batch)]
        scored = (self._forward(p, np.arange(len(p), dtype=np.int32)) for p in parts)
        return np.concatenate([logits.copy() for logits in scored])

    def _forward(self, ids: Ids[int], outputs: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        array = np.asarray(ids, np.int32)
        logits = self._runner.forward(array, len(self.tokens), self._pages, outputs)
        self.tokens.extend(int(i) for i in array)
        return logits

    def _reserve(self, count: int) -> None:
        if count > self.room:
            wanted = len(self.tokens) + count
            raise ContextFullError(
                f"{wanted} tokens do not fit the context of {self.capacity}; raise it with -c"
            )
        needed = -(-(len(self.tokens) + count) // PAGE_POSITIONS)
        while self._num_pages < needed:
            page = self._runner.pages.take()
            if page is None:
                raise ContextFullError("all KV pages are in use by other sequences; raise -c")
            self._pages[self._num_pages] = page
            self._num_pages += 1
