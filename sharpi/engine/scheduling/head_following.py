"""HeadFollowing: gives a model's MTP head the hidden states of what each step has computed."""

from collections.abc import Iterator, Sequence

from sharpi.engine.backends.head_part import HeadPart
from sharpi.engine.backends.model_part import Segment, Values
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.head_drafter import HeadDrafter
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.share import Share


class HeadFollowing:
    """Lets every request of one scheduler have a drafter that follows it."""

    def __init__(self, runner: Runner, head: HeadPart, min_probability: float) -> None:
        self._runner, self._head, self._least = runner, head, min_probability

    def take_prompts(self, shares: Sequence[Share], segments: Sequence[Segment]) -> None:
        """Takes the hidden states of prompts, all of whose tokens count."""
        for share, segment, hidden in self._rows(shares, segments):
            if share.is_prompt:
                self._take(share.request, segment.position, hidden, is_prompt=True)

    def take_decoded(self, shares: Sequence[Share], segments: Sequence[Segment]) -> None:
        """Takes those of other tokens, without drafts that were wrong."""
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
