"""One sequence's tokens, its pages in the KV cache, and what its recurrent layers carry."""

from collections.abc import Sequence as Ids

import numpy as np
import numpy.typing as npt

from sharpi.engine.kv.sequence_state import LONG_PROMPT, REWRITTEN_TOKENS, SequenceState
from sharpi.engine.runner import Runner
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

_NO_OUTPUTS = np.zeros(0, np.int32)


class Sequence:
    """Tokens whose keys and values are cached; grows by `extend`, shrinks by `truncate`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pages = np.zeros(-(-runner.context_size // PAGE_POSITIONS), np.int32)
        self._num_pages = 0
        self._state = SequenceState(runner.states)
        self.tokens: list[int] = []

    @property
    def capacity(self) -> int:
        """Tokens that fit in all."""
        return self._runner.context_size

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self._runner.context_size - len(self.tokens)

    @property
    def num_ready(self) -> int:
        """Leading tokens that the next `extend` need not compute again."""
        return len(self.tokens) if self._state.is_empty else self._state.position or 0

    def shared_prefix(self, ids: Ids[int]) -> int:
        """How many leading tokens of `ids` are cached already."""
        count = 0
        for cached, wanted in zip(self.tokens, ids, strict=False):
            if cached != wanted:
                break
            count += 1
        return count

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on and returns their pages.

        Recurrent layers go back to the last snapshot before; see `num_ready`.
        """
        del self.tokens[length:]
        self._state.rewind(len(self.tokens))
        kept = -(-length // PAGE_POSITIONS)
        if kept < self._num_pages:
            self._runner.pages.give_back(self._pages[kept : self._num_pages].tolist())
            self._num_pages = kept

    def remember(self) -> None:
        """Makes it cheap to truncate to this length later, where the model has recurrent layers."""
        self._state.remember()

    def prefill(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """`extend` by a prompt; its beginning and shortly before its end are remembered."""
        self._reserve(len(ids))
        self._catch_up()
        self.remember()
        if not self._state.is_empty and len(ids) >= LONG_PROMPT:
            self.extend(ids[:-REWRITTEN_TOKENS])
            self.remember()
            ids = ids[-REWRITTEN_TOKENS:]
        return self.extend(ids)

    def extend(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends tokens, batch by batch; logits (vocabulary,) after the last, a passing view.

        Raises ContextFullError when they do not fit, before anything is computed.
        """
        self._reserve(len(ids))
        self._catch_up()
        batch = self._runner.prompt_batch
        for start in range(0, len(ids), batch):
            part = ids[start : start + batch]
            last = start + batch >= len(ids)
            logits = self._forward(
                part, np.array([len(part) - 1], np.int32) if last else _NO_OUTPUTS
            )
        return np.asarray(logits[0])

    def extend_largest(self, token: int) -> int:
        """Appends one token; the id of the largest logit after it. Raises as `extend`."""
        self._reserve(1)
        self._catch_up()
        state = self._state.begin()
        ids = np.array([token], np.int32)
        chosen = self._runner.largest(ids, len(self.tokens), self._pages, state)
        self.tokens.append(token)
        self._state.finish(len(self.tokens))
        return chosen

    def extend_scored(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends tokens and gives the logits (tokens, vocabulary) after each of them."""
        self._reserve(len(ids))
        self._catch_up()
        batch = self._runner.scoring_batch
        parts = [ids[i : i + batch] for i in range(0, len(ids), batch)]
        scored = (self._forward(p, np.arange(len(p), dtype=np.int32)) for p in parts)
        return np.concatenate([logits.copy() for logits in scored])

    def _catch_up(self) -> None:
        """Computes again what the recurrent layers have lost of the tokens that are there."""
        ready = self._state.rewind(len(self.tokens))
        missing = self.tokens[ready:]
        del self.tokens[ready:]
        for start in range(0, len(missing), self._runner.prompt_batch):
            self._forward(missing[start : start + self._runner.prompt_batch], _NO_OUTPUTS)

    def _forward(self, ids: Ids[int], outputs: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        array = np.asarray(ids, np.int32)
        state = self._state.begin()
        logits = self._runner.forward(array, len(self.tokens), self._pages, outputs, state)
        self.tokens.extend(int(i) for i in array)
        self._state.finish(len(self.tokens))
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
