"""One request on its way through the scheduler, and the limit that the context sets to its text."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.kv.pages import Cut
from sharpi.engine.sampling.generation_state import (
    FinishInfo,
    GenerationState,
    PrefillProgress,
    TextDelta,
)
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.errors import too_long_prompt
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

if TYPE_CHECKING:
    from sharpi.speculation.draft import Drafter
    from sharpi.speculation.sequence_drafts import SequenceDrafts

_SHARED_TOKENS = 64  # a common beginning of two prompts that is worth a snapshot
# Templates often change the last tokens of a prompt once it is part of the history.
_REWRITTEN_TOKENS = 16
_LONG_PROMPT = 256  # a prompt of so many tokens gets a snapshot, and a step of its own for it
_NO_ROWS = np.zeros(0, np.int32)


class RequestId(Struct, frozen=True):
    """Identifies a request; later ones have higher numbers."""

    number: int


class Request:
    """A request in the scheduler: its tokens, pages, drafts and callbacks.

    `tokens` are the prompt and the tokens chosen since; `table` has those that are computed.
    Without a table the request has not begun, or it lost its pages and has to begin again.
    """

    def __init__(
        self,
        request_id: RequestId,
        generation_state: GenerationState,
        tokens: Sequence[int],
        on_delta: Callable[[TextDelta], None],
        on_end: Callable[[FinishInfo], None],
        on_progress: Callable[[PrefillProgress], None] | None = None,
        client: str = "",
        cut: Cut | None = None,
    ) -> None:
        self._cut = cut
        self.request_id, self.generation_state = request_id, generation_state
        self.client = client
        self.tokens = list(tokens)
        self.on_delta, self.on_end, self._on_progress = on_delta, on_end, on_progress
        self.table: PageTable | None = None
        self._restoring: Generator[int, None, None] | None = None
        self.is_prefilled = False
        # From its first decoded token on, if drafts are on.
        self.drafts: SequenceDrafts | None = None
        self.head: Drafter | None = None  # from its first step on, with an MTP head
        self.slot: int | None = None  # no other running request has this number
        self._snapshot_ends: list[int] = []

    @property
    def num_computed(self) -> int:
        return self.table.length if self.table else 0

    @property
    def num_pending(self) -> int:
        """The number of tokens to compute before the next one is chosen."""
        return len(self.tokens) - (self.table.length if self.table else 0)

    @property
    def is_decoding(self) -> bool:
        """True if only the newest token has to be computed before the next one is chosen."""
        return self.table is not None and len(self.tokens) - self.table.length == 1

    def restore(self, cache: PrefixCache, max_bytes: int | None) -> bool:
        """Reads about `max_bytes` of pages from disk; returns True once all are read."""
        if cache.disk is None:
            return True
        if self._restoring is None:
            from sharpi.engine.scheduling.restoration import restoration

            self._restoring = restoration(cache, self.tokens[:-1])
        num_bytes = 0
        for count in self._restoring:
            num_bytes += count
            if max_bytes is not None and num_bytes >= max_bytes:
                return False
        return True

    def open(self, cache: PrefixCache, max_pages: int) -> PageTable:
        """Creates the page table, which begins with the cached prefix; raises ContextFullError."""
        self.table = table = PageTable(cache, self.tokens, max_pages, self._cut)
        self._snapshot_ends = self._find_snapshot_ends(table) if cache.states.are_needed else []
        if not self.is_prefilled:
            timings = self.generation_state.timings
            timings.num_cached_tokens = table.length
            timings.num_prompt_tokens = self.num_pending
            self.generation_state.begin()
        return table

    def _find_snapshot_ends(self, table: PageTable) -> list[int]:
        """Returns after how many tokens to keep snapshots of the recurrent state."""
        ends = []
        if table.num_shared - table.length >= _SHARED_TOKENS:
            ends.append(table.num_shared)
        if self.num_pending >= _LONG_PROMPT:
            ends.append(len(self.tokens) - _REWRITTEN_TOKENS)
        return sorted(ends)

    def next_count(self, budget: int) -> int:
        """Returns the number of tokens of the next step, which ends where a snapshot is kept."""
        assert self.table is not None
        done = self.num_computed
        ends = [end - done for end in self._snapshot_ends if end > done]
        return self.table.next_count(min([budget, self.num_pending, *ends]))

    @property
    def pages_to_come(self) -> int:
        if self.table is not None:
            return self.table.pages_to_come(len(self.tokens))
        kept = self._cut.num_pages if self._cut else 0
        return len(self.tokens) // PAGE_POSITIONS + 1 + kept

    def segment(self, count: int) -> Segment:
        """Builds a segment of `count` tokens, with logits of the newest if it is among them."""
        assert self.table is not None
        start = self.table.length
        ids = self.tokens[start : start + count]
        outputs = None if start + count == len(self.tokens) else _NO_ROWS
        return self.table.segment(ids, outputs, self.request_id.number)

    def checking_segment(self, drafts: Sequence[int]) -> Segment:
        """Builds a segment of the newest token and its drafts, with the logits of all of them."""
        assert self.table is not None
        ids = [self.tokens[-1], *drafts]
        rows = np.arange(len(ids), dtype=np.int32)
        return self.table.segment(ids, rows, self.request_id.number, len(drafts))

    def computed(self, count: int) -> None:
        assert self.table is not None
        start = self.table.length
        self.table.finish(self.tokens[start : start + count])
        if self._snapshot_ends and self.table.length in self._snapshot_ends:
            self.table.save_snapshot()
        if self._on_progress is not None and not self.is_prefilled:
            self._on_progress(self.generation_state.prefill_progress(self.table.length))

    def continues_with(self, draft: int) -> bool:
        """Returns True if the request has not ended and its newest token is `draft`."""
        continues = self.generation_state.finish_reason is None and self.table is not None
        return continues and self.tokens[-1] == draft

    def release(self) -> None:
        """Gives back pages and state; computed tokens may be found again in the prefix cache."""
        if self._restoring is not None:
            self._restoring.close()
            self._restoring = None
        if self.table is not None:
            self.table.release()
            self.table = None


class ContextLimit:
    """A context of `size` tokens; with `shifts` a full one keeps its first token and newest half.

    The half is computed anew, so the text continues exactly as from a fresh prompt of these tokens.
    """

    def __init__(self, size: int, *, shifts: bool) -> None:
        self._size, self._shifts = size, shifts

    def fitted(self, prompt: list[int]) -> list[int]:
        """Returns the prompt, shortened if need be; raises ContextFullError without `shifts`."""
        if len(prompt) < self._size:
            return prompt
        if not self._shifts:
            remedy = "raise it with -c, or drop the prompt's beginning with --context-shift"
            raise too_long_prompt(str(len(prompt)), self._size, remedy)
        return self._shifted(prompt)

    def checked(self, request: Request, delta: TextDelta) -> TextDelta:
        """Shifts a full context after a new token, or ends the answer; returns the delta."""
        if len(request.tokens) <= self._size:
            return delta
        if not self._shifts:
            return TextDelta(
                delta.text + request.generation_state.end("context").text, delta.tokens
            )
        request.tokens = self._shifted(request.tokens)
        request.release()
        return delta

    def _shifted(self, tokens: list[int]) -> list[int]:
        return [tokens[0], *tokens[len(tokens) - max(1, self._size // 2 - 1) :]]
