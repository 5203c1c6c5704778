"""A sequence whose tokens are given, not generated: for logits, perplexity and benchmarks."""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Ids
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import Values
from sharpi.engine.kv.pages import cut_of
from sharpi.engine.runner import Runner, StepInFlight
from sharpi.engine.sampling.sampler import SampledToken, with_logprobs
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.program import IntArray

_NO_ROWS = np.zeros(0, np.int32)
_NO_PAGES = "all KV pages are in use by other sequences; raise -c"


class Sequence:
    """Tokens whose keys and values are cached, with a prompt that `kv_keep` may cut."""

    def __init__(self, runner: Runner, num_prompt_tokens: int = 0) -> None:
        self._runner = runner
        self._cut = cut_of(num_prompt_tokens, runner.settings.kv_keep)
        self._cache = PrefixCache(runner, has_branches=False)
        self._table: PageTable | None = None
        self.tokens: list[int] = []

    def truncate(self, length: int) -> None:
        """Forgets tokens from `length` on; recurrent layers go back to a snapshot before it."""
        del self.tokens[length:]
        if self._table is not None and self._table.rewind(length):
            return
        if self._table is not None:
            self._table.release()
            self._table = None
        if self.tokens:
            self._open()
        else:
            self._cache.clear()

    def recompute(self) -> None:
        """Computes tokens that `truncate` lost anew, which the next `extend` would do otherwise."""
        self._ready(0)

    def save_snapshot(self) -> None:
        """Keeps a snapshot of the recurrent layers' state, for a `truncate` to this length."""
        self._open().save_snapshot()

    def extend(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Returns logits (vocabulary,) after new tokens, a view; raises ContextFullError."""
        table, batch = self._ready(len(ids)), self._runner.prompt_chunk(len(ids))
        *firsts, last = self._parts(table, ids, batch)
        for part in firsts:
            self._step(table, part, _NO_ROWS)
        return np.asarray(self._step(table, last, None)[0])

    def extend_largest(self, token: int) -> int:
        """Appends one token; returns the id of the largest logit after it. Raises as `extend`."""
        self._runner.finish(self._begin(self._ready(1), [token], None, wants_largest=True))
        return self._runner.largest()

    def extend_checked(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends a token and correct drafts; returns logits (tokens, vocabulary), a view."""
        table, rows = self._ready(len(ids)), np.arange(len(ids), dtype=np.int32)
        step = self._begin(table, ids, rows, num_drafts=len(ids) - 1)
        return self._runner.finish(step)

    def extend_scored(self, ids: Ids[int]) -> npt.NDArray[np.float32]:
        """Appends tokens; returns logits (tokens, vocabulary) after each. Raises as `extend`."""
        table, batch = self._ready(len(ids)), self._runner.scoring_batch
        parts = self._parts(table, ids, batch)
        return np.concatenate([logits.copy() for logits in self._scored(table, parts)])

    def _parts(self, table: PageTable, ids: Ids[int], batch: int) -> list[Ids[int]]:
        """Splits the next tokens into steps of at most `batch` tokens."""
        ends = set(range(batch, len(ids), batch))
        if self._cut is not None:
            window, end = self._cut.window - table.length, self._cut.length - table.length
            ends = {at for at in (*ends, window, end) if at <= window or at >= end}
        starts = [0, *sorted(at for at in ends if 0 < at < len(ids)), len(ids)]
        return [ids[start:end] for start, end in pairwise(starts)]

    def _scored(self, table: PageTable, parts: Ids[Ids[int]]) -> Iterator[Values]:
        """Yields each part's logits; as many parts are in progress as there are ranks."""
        in_flight: deque[StepInFlight] = deque()
        for part in parts:
            rows = np.arange(len(part), dtype=np.int32)
            in_flight.append(self._begin(table, part, rows))
            if len(in_flight) == self._runner.num_ranks:
                yield self._runner.finish(in_flight.popleft())
        while in_flight:
            yield self._runner.finish(in_flight.popleft())

    def _open(self) -> PageTable:
        """Returns the page table; makes a new one, on the cached prefix, after a failed step."""
        if self._table is not None and not self._table.is_valid:
            self._table.release()
            self._table = None
        if self._table is None:
            # A table never has its last token's keys and values: -1 stands for the next token.
            pages = self._runner.settings.pages_per_sequence
            self._table = PageTable(self._cache, [*self.tokens, -1], pages, self._cut)
        return self._table

    def _ready(self, count: int) -> PageTable:
        """Reserves pages for `count` more tokens, and computes missing tokens before them."""
        wanted, capacity = len(self.tokens) + count, self._runner.context_size
        if wanted > capacity:
            raise ContextFullError(
                f"{wanted} tokens do not fit the context of {capacity}; raise it with -c"
            )
        table, batch = self._open(), self._runner.prompt_chunk(len(self.tokens))
        if not table.reserve(wanted - table.length):
            raise ContextFullError(_NO_PAGES)
        if table.length < len(self.tokens):
            for missing in self._parts(table, self.tokens[table.length :], batch):
                self._step(table, missing, _NO_ROWS)
        return table

    def _step(self, table: PageTable, ids: Ids[int], outputs: IntArray | None) -> Values:
        return self._runner.finish(self._begin(table, ids, outputs))

    def _begin(
        self,
        table: PageTable,
        ids: Ids[int],
        outputs: IntArray | None,
        *,
        wants_largest: bool = False,
        num_drafts: int = 0,
    ) -> StepInFlight:
        if not table.reserve(len(ids)):
            raise ContextFullError(_NO_PAGES)
        segment = table.segment(ids, outputs, num_drafts=num_drafts)
        begun = self._runner.begin((segment,), wants_largest=wants_largest)
        self.tokens[table.length : table.length + len(ids)] = ids
        table.finish(ids)
        return begun


_NO_TOKEN = -1  # begins no cached prompt, so that every token is computed


class PromptScores:
    """Scores one prompt, a batch at a time; the first of `tokens` has no log probability."""

    def __init__(self, runner: Runner, cache: PrefixCache, ids: Ids[int], num_best: int) -> None:
        if len(ids) >= runner.context_size:
            size = runner.context_size
            raise ContextFullError(f"the prompt has {len(ids)} tokens and the context {size}")
        self._runner, self._ids, self._num_best = runner, list(ids), num_best
        self._table = PageTable(cache, [_NO_TOKEN], runner.settings.pages_per_sequence)
        self.tokens = [SampledToken(each) for each in self._ids[:1]]

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) == len(self._ids)

    def step(self) -> None:
        """Scores the next batch; raises ContextFullError if no KV pages are free."""
        start = self._table.length
        part = self._ids[start : start + self._runner.scoring_batch]
        if not self._table.reserve(len(part)):
            raise ContextFullError("all KV pages are in use by other requests; try again later")
        rows = np.arange(len(part), dtype=np.int32)
        logits = self._runner.step((self._table.segment(part, rows),))
        self._table.finish(part)
        following = self._ids[start + 1 : start + 1 + len(part)]
        self.tokens += [
            with_logprobs(token, row, self._num_best)
            for token, row in zip(following, logits, strict=False)
        ]

    def close(self) -> None:
        self._table.release()
