"""Flight: the steps of a scheduler that have begun, each with its requests' shares.

Where several ranks run the layers, requests are dealt out to as many steps as there are ranks, so
that all ranks work at once. On one machine a step ends before the next begins.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.runner import StepInFlight
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.request import Request
from sharpi.speculation.speculator import StepDrafts


class Share(NamedTuple):
    """A request's tokens in a step; `is_prompt` unless it decodes.

    A decoding request may have `drafts`, to be checked after its newest token.
    """

    request: Request
    num_tokens: int
    is_prompt: bool
    drafts: tuple[int, ...] = ()

    def segment(self) -> Segment:
        """Builds the request's part of the step."""
        if self.drafts:
            return self.request.checking_segment(self.drafts)
        return self.request.segment(self.num_tokens)


def takes_largest(shares: Sequence[Share]) -> bool:
    """True if the step is one greedy request's next token, so that no logits are copied back.

    A GPU's recorded step finds the largest logit of one output only. With several requests in a
    step, all logits are copied back.
    """
    request, num_tokens, is_prompt, drafts = shares[0]
    is_alone = len(shares) == num_tokens == 1 and not is_prompt and not drafts
    return is_alone and request.generation_state.takes_largest


class Begun(Struct, frozen=True):
    """A step that has begun: its shares, with the tables that they are computed in."""

    shares: Sequence[Share]
    segments: Sequence[Segment]
    tables: Sequence[PageTable | None]
    step: StepInFlight
    start: float  # of the step, in seconds
    drafts: StepDrafts | None = None  # None where no drafts were looked for

    def is_wanted(self, row: int) -> bool:
        """True unless the request of share `row` has ended since, or has lost its pages."""
        return self.shares[row].request.table is self.tables[row]

    def awaits(self, request: Request) -> bool:
        """True if this step computes the logits of the request's next token."""
        return any(
            share.request is request and len(self.segments[row].outputs) and self.is_wanted(row)
            for row, share in enumerate(self.shares)
        )


class Flight:
    """The steps that have begun, at most `num_ranks`."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._steps: deque[Begun] = deque()
        self._last_end = 0.0

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def is_full(self) -> bool:
        """True if a step must end before another begins."""
        return len(self._steps) >= self._num_ranks

    def add(self, begun: Begun) -> None:
        """Adds a step that has begun."""
        self._steps.append(begun)

    def next(self) -> Begun:
        """Takes the step that ends first."""
        return self._steps.popleft()

    def seconds_of(self, begun: Begun) -> float:
        """Returns the duration of a step that has ended just now, for one call.

        Where several are in progress, that is the time since the one before ended: what it adds to
        the time of all.
        """
        start, self._last_end = max(begun.start, self._last_end), time.perf_counter()
        return self._last_end - start

    def idle(self, requests: Sequence[Request]) -> list[Request]:
        """Returns requests that wait for no begun step, at most one rank's share of all."""
        if not self._steps and self._num_ranks == 1:
            return list(requests)
        idle = [each for each in requests if not any(step.awaits(each) for step in self._steps)]
        return idle[: -(-len(requests) // self._num_ranks)]
