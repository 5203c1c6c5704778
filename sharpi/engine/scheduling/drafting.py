"""Drafting: adds drafts of next tokens to the requests of a step, which checks the drafts."""

from collections.abc import Iterable, Iterator

from sharpi.engine.backends.draft_head import DraftHead
from sharpi.engine.backends.model_part import Segment, Values
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.head_drafter import HeadDrafter
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.steps import (
    ScheduledRequest,
    StartedStep,
    StepProposal,
    TokenProposer,
)
from sharpi.speculation.sequence_drafts import SequenceDrafts
from sharpi.speculation.speculator import SequenceRequest, Speculator


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


class Drafting(TokenProposer):
    """Adds drafts to the steps of one scheduler, which the `runner` computes.

    An MTP `head` of the model, if there is one, needs the hidden states of all steps.
    """

    def __init__(self, speculator: Speculator, runner: Runner, head: DraftHead | None) -> None:
        self._speculator, self._context_size = speculator, runner.context_size
        self._runner = runner
        self._heads: HeadFollowing | None = None
        self.follows_prompts = head is not None
        # Models draft in most steps, and heads from hidden states that a next step overwrites.
        self._may_run_ahead = not (self.follows_prompts or speculator.has_models)
        if head is not None:
            self._heads = HeadFollowing(runner, head, speculator.settings.min_probability)
        # Steps in progress share the states that recurrent layers leave behind.
        self._shares_states = bool(runner.states.size)
        self._num_before: list[int] = []  # tokens of each answer before the step that ends
        self._is_whole = True  # no request of that step has ended since it began

    def propose(self, batch: list[ScheduledRequest], num_steps: int) -> StepProposal:
        """Returns the batch with drafts added; adds none to a step with a part of a prompt.

        `num_steps` steps are usually in progress, this one included. A step that a GPU has begun
        already gets no drafts. If drafts were found, the GPU does not begin the next step early.
        """
        if any(scheduled.is_prompt for scheduled in batch) or self._speculator.skips_search():
            return StepProposal(batch, may_run_ahead=self._may_run_ahead)
        most = self._speculator.max_drafts // (num_steps if self._shares_states else 1)
        sequences = [self._sequence_request(scheduled.request, most) for scheduled in batch]
        drafts = self._speculator.choose(sequences, most, num_steps)
        has_drafts = any(drafts.drafts)
        if has_drafts and self._runner.is_ahead:
            return StepProposal(batch, may_run_ahead=False)
        drafted = [
            scheduled._replace(proposed=draft.tokens) if draft is not None else scheduled
            for scheduled, draft in zip(batch, drafts.drafts, strict=True)
        ]
        return StepProposal(drafted, drafts, self._may_run_ahead and not has_drafts)

    def _sequence_request(self, request: Request, most: int) -> SequenceRequest:
        if request.drafts is None:
            own = [] if request.head is None else [request.head]
            request.drafts = self._speculator.begin(request.tokens, own)
            request.drafts.num_known = len(request.generation_state.ids)
            request.generation_state.timings.drafts = request.drafts.statistics
        else:
            self._report_undrafted_tokens(request, request.drafts)
        most = min(most, self._max_drafts(request))
        if most > 0 and request.table is not None and not request.table.reserve(1 + most):
            most = 0
        return SequenceRequest(request.drafts, most)

    def _report_undrafted_tokens(self, request: Request, drafts: SequenceDrafts) -> None:
        ids = request.generation_state.ids
        if len(ids) > drafts.num_known:
            self._speculator.record_skipped(drafts, ids[drafts.num_known :])

    def _max_drafts(self, request: Request) -> int:
        """Returns the most drafts that leave room for one more token in context and answer."""
        left = self._context_size - len(request.tokens)
        state = request.generation_state
        if state.request.max_tokens >= 0:
            left = min(left, state.request.max_tokens - len(state.ids) - 1)
        return left

    def computed(self, started: StartedStep) -> None:
        """Prepares for `learn`, after a step and before its tokens are chosen.

        The MTP head, if there is one, receives the hidden states of computed prompts.
        """
        self._num_before = [
            len(scheduled.request.generation_state.ids) for scheduled in started.batch
        ]
        self._is_whole = all(started.is_wanted(row) for row in range(len(started.batch)))
        if self._heads is not None:
            self._heads.take_prompts(started)

    def learn(self, started: StartedStep, seconds: float) -> None:
        """Passes a step's seconds and chosen tokens to the speculator, which learns from them."""
        if self._heads is not None:
            self._heads.take_decoded(started)
        if started.proposed is None or not self._is_whole:
            return
        tokens = [
            scheduled.request.generation_state.ids[before:]
            for scheduled, before in zip(started.batch, self._num_before, strict=True)
        ]
        self._speculator.record(started.proposed, seconds, tokens)

    def pause(self, requests: Iterable[Request]) -> None:
        """Ends drafting for these requests; `propose` may begin it again."""
        for request in requests:
            if request.drafts is not None:
                self.end(request)

    def end(self, request: Request) -> None:
        """Ends drafting for a request; later drafts may come from the new part of its text."""
        num_seen = request.generation_state.timings.num_cached_tokens
        if request.drafts is not None:
            self._report_undrafted_tokens(request, request.drafts)
        if request.is_prefilled:
            self._speculator.end(request.drafts, request.tokens[num_seen:])
        request.drafts = None
