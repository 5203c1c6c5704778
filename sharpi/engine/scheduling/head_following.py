"""HeadFollowing: passes the hidden states of each step to the drafters of a model's MTP head."""

from collections.abc import Iterator, Sequence

from sharpi.engine.backends.draft_head import DraftHead
from sharpi.engine.backends.model_part import Segment, Values
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.head_drafter import HeadDrafter
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.share import Share


class HeadFollowing:
    """Gives each request of one scheduler a HeadDrafter, and passes it its hidden states."""

    def __init__(self, runner: Runner, head: DraftHead, min_probability: float) -> None:
        self._runner, self._head, self._least = runner, head, min_probability

    def take_prompts(self, shares: Sequence[Share], segments: Sequence[Segment]) -> None:
        """Passes on the hidden states of prompts, of all tokens in the step."""
        for share, segment, hidden in self._rows(shares, segments):
            if share.is_prompt:
                self._take(share.request, segment.position, hidden, is_prompt=True)

    def take_decoded(self, shares: Sequence[Share], segments: Sequence[Segment]) -> None:
        """Passes on the hidden states of decoded tokens, except those of wrong drafts."""
        for share, segment, hidden in self._rows(shares, segments):
            table = share.request.table
            if not share.is_prompt and table is not None:
                count = table.length - segment.position
                self._take(share.request, segment.position, hidden[:count], is_prompt=False)

    def _rows(
        self, shares: Sequence[Share], segments: Sequence[Segment]
    ) -> Iterator[tuple[Share, Segment, Values]]:
        hidden, row = self._runner.hidden, 0
        for share, segment in zip(shares, segments, strict=True):
            end = row + len(segment.ids)
            yield share, segment, hidden[row:end]
            row = end

    def _take(self, request: Request, position: int, hidden: Values, *, is_prompt: bool) -> None:
        if request.head is None:
            request.head = HeadDrafter(self._head, self._runner.vocab_size, self._least)
        if request.table is not None:
            request.head.computed(
                request.table, position, hidden, request.tokens, is_prompt=is_prompt
            )
