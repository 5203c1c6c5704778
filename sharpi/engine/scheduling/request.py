"""One answer on its way through the scheduler: what it has said, and what it has computed."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.kv.sequence_state import LONG_PROMPT, REWRITTEN_TOKENS
from sharpi.engine.sampling.generation_state import GenerationState
from sharpi.engine.sampling.text_delta import FinishInfo, TextDelta
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.prefix_cache import PrefixCache

_SHARED_TOKENS = 64  # that two prompts begin with and that are worth a snapshot


class RequestId(Struct, frozen=True):
    """Names an answer to whoever asked for it; later ones have higher numbers."""

    number: int


class Request:
    """`tokens`: the prompt and what was chosen since; `table` has what of them is computed.

    Without a table it has not begun, or has lost its pages and begins again.
    """

    def __init__(
        self,
        request_id: RequestId,
        generation_state: GenerationState,
        tokens: Sequence[int],
        on_delta: Callable[[TextDelta], None],
        on_end: Callable[[FinishInfo], None],
    ) -> None:
        self.request_id, self.generation_state = request_id, generation_state
        self.tokens = list(tokens)
        self.on_delta, self.on_end = on_delta, on_end
        self.table: PageTable | None = None
        self.is_prefilled = False
        self._marks: list[int] = []

    @property
    def num_computed(self) -> int:
        """Tokens in the KV cache."""
        return self.table.length if self.table else 0

    @property
    def num_pending(self) -> int:
        """Tokens that are still to be computed before the next is chosen."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether the next step gives a token."""
        return self.table is not None and self.num_pending == 1

    def open(self, cache: PrefixCache, max_pages: int) -> PageTable:
        """Its table; begins one with what others have left. Raises ContextFullError."""
        if self.table is None:
            self.table = table = PageTable(cache, self.tokens, max_pages)
            self._marks = self._places_to_remember(table) if cache.states.are_needed else []
            if not self.is_prefilled:
                timings = self.generation_state.timings
                timings.num_cached_tokens = table.length
                timings.num_prompt_tokens = self.num_pending
                self.generation_state.begin()
        return self.table

    def _places_to_remember(self, table: PageTable) -> list[int]:
        """Where others may go on from: what is shared already, and the prompt's lasting part."""
        places = []
        if table.num_shared - table.length >= _SHARED_TOKENS:
            places.append(table.num_shared)
        if self.num_pending >= LONG_PROMPT:
            places.append(len(self.tokens) - REWRITTEN_TOKENS)
        return sorted(places)

    def next_count(self, budget: int) -> int:
        """Tokens of the next step, at most `budget`: it ends where a state is to be remembered."""
        ends = [mark for mark in self._marks if mark > self.num_computed]
        return min([budget, self.num_pending, *(end - self.num_computed for end in ends)])

    def segment(self, count: int) -> Segment:
        """Its share of a step."""
        assert self.table is not None
        start = self.num_computed
        wants_logits = count == self.num_pending
        return Segment(
            ids=np.asarray(self.tokens[start : start + count], np.int32),
            position=start,
            outputs=np.array([count - 1] if wants_logits else [], np.int32),
            pages=self.table.pages,
            state=self.table.state,
            sequence=self.request_id.number,
        )

    def computed(self, count: int) -> None:
        """The segment of so many tokens has been run."""
        assert self.table is not None
        start = self.num_computed
        self.table.finish(self.tokens[start : start + count])
        if self.num_computed in self._marks:
            self.table.remember()

    def release(self) -> None:
        """Gives up pages and state; what is computed may be found again in the prefix cache."""
        if self.table is not None:
            self.table.release()
            self.table = None
