"""HeadFollowing: passes the hidden states of each step to the drafters of a model's MTP head."""

from collections.abc import Iterator

from sharpi.engine.backends.draft_head import DraftHead
from sharpi.engine.backends.model_part import Segment, Values
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.head_drafter import HeadDrafter
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.steps import ScheduledRequest, StartedStep


class HeadFollowing:
    """Gives each request of one scheduler a HeadDrafter, and passes hidden states to it."""

    def __init__(self, runner: Runner, head: DraftHead, min_probability: float) -> None:
        self._runner, self._head, self._least = runner, head, min_probability

    def take_prompts(self, started: StartedStep) -> None:
        """Passes on the hidden states of all prompt tokens in a step that has ended."""
        for scheduled, segment, hidden in self._rows(started):
            if scheduled.is_prompt:
                self._take(scheduled.request, segment.position, hidden, is_prompt=True)

    def take_decoded(self, started: StartedStep) -> None:
        """Passes on the hidden states of decoded tokens, except those of rejected drafts."""
        for scheduled, segment, hidden in self._rows(started):
            table = scheduled.request.table
            if not scheduled.is_prompt and table is not None:
                count = table.length - segment.position
                self._take(scheduled.request, segment.position, hidden[:count], is_prompt=False)

    def _rows(self, started: StartedStep) -> Iterator[tuple[ScheduledRequest, Segment, Values]]:
        """Yields the requests that have not ended since the step began, and hidden states."""
        hidden, first = self._runner.hidden, 0
        for row, (scheduled, segment) in enumerate(
            zip(started.batch, started.segments, strict=True)
        ):
            end = first + len(segment.ids)
            if started.is_wanted(row):
                yield scheduled, segment, hidden[first:end]
            first = end

    def _take(self, request: Request, position: int, hidden: Values, *, is_prompt: bool) -> None:
        if request.head is None:
            request.head = HeadDrafter(self._head, self._runner.vocab_size, self._least)
        if request.table is not None:
            request.head.computed(
                request.table, position, hidden, request.tokens, is_prompt=is_prompt
            )
