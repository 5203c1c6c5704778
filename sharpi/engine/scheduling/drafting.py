"""Drafting: adds drafts of next tokens to a step; HeadDrafter: drafts by the model's MTP head."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ids
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.model_part import Values
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.steps import (
    ScheduledRequest,
    StartedStep,
    StepProposal,
    TokenProposer,
)
from sharpi.errors import ModelFileError
from sharpi.ops.cpu.program import IntArray
from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft, likely_draft
from sharpi.speculation.sequence_drafts import SequenceDrafts
from sharpi.speculation.speculator import SequenceRequest, Speculator

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead, HeadOutput


class Drafting(TokenProposer):
    """Adds drafts to the steps of one scheduler, which the `runner` computes.

    `make` returns the engine's speculator, which the first step without a prompt needs. With
    `has_models` it drafts by models. An MTP `head` of the model, if there is one, needs the hidden
    states of all steps.
    """

    def __init__(
        self,
        make: Callable[[], Speculator],
        runner: Runner,
        head: "DraftHead | None",
        *,
        has_models: bool,
    ) -> None:
        self._make, self._runner, self._head = make, runner, head
        self.follows_prompts = head is not None
        # Models draft in most steps, and heads from hidden states that a next step overwrites.
        self._may_run_ahead = not (self.follows_prompts or has_models)
        # Steps in progress share the states that recurrent layers leave behind.
        self._shares_states = bool(runner.states.size)
        self._num_before: list[int] = []  # tokens of each answer before the step that ends
        self._is_whole = True  # no request of that step has ended since it began

    @cached_property
    def _speculator(self) -> Speculator:
        return self._make()

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
            scheduled._replace(proposed=tokens) if tokens else scheduled
            for scheduled, tokens in zip(batch, drafts.drafts, strict=True)
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
        left = self._runner.context_size - len(request.tokens)
        state = request.generation_state
        if state.request.max_tokens >= 0:
            left = min(left, state.request.max_tokens - len(state.ids) - 1)
        return left

    def computed(self, started: StartedStep) -> None:
        """Prepares for `learn` before tokens are chosen; a head gets hidden states of prompts."""
        self._num_before = [
            len(scheduled.request.generation_state.ids) for scheduled in started.batch
        ]
        self._is_whole = all(started.is_wanted(row) for row in range(len(started.batch)))
        if self._head is not None:
            self._follow(self._head, started, of_prompts=True)

    def learn(self, started: StartedStep, seconds: float) -> None:
        """Passes a step's seconds and chosen tokens to the speculator, which learns from them."""
        if self._head is not None:
            self._follow(self._head, started, of_prompts=False)
        if started.proposed is None or not self._is_whole:
            return
        tokens = [
            scheduled.request.generation_state.ids[before:]
            for scheduled, before in zip(started.batch, self._num_before, strict=True)
        ]
        self._speculator.record(started.proposed, seconds, tokens)

    def _follow(self, head: "DraftHead", started: StartedStep, *, of_prompts: bool) -> None:
        """Passes hidden states of prompts to the head, or those of decoded tokens."""
        hidden, end = self._runner.hidden, 0
        for row, (scheduled, segment) in enumerate(
            zip(started.batch, started.segments, strict=True)
        ):
            first, end = end, end + len(segment.ids)
            request, table = scheduled.request, scheduled.request.table
            if scheduled.is_prompt != of_prompts or table is None or not started.is_wanted(row):
                continue
            drafter = request.head
            if not isinstance(drafter, HeadDrafter):
                least = self._speculator.settings.min_probability
                drafter = request.head = HeadDrafter(head, self._runner.vocab_size, least)
            kept = len(segment.ids) if of_prompts else table.length - segment.position
            own = hidden[first:end][:kept]
            drafter.computed(table, segment.position, own, request.tokens, is_prompt=of_prompts)

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


_MOST_WAITING = 1024  # hidden states of decoded tokens


class HeadDrafter:
    """Drafts the tokens that the head finds most likely, down to `min_probability`.

    The head's keys and values are in the model's pages. It processes hidden states of a prompt at
    once, and of decoded tokens only when it drafts, or when many wait: a head whose drafts are not
    wanted costs nothing. Keys at the end of a shared prefix may belong to another next token.
    """

    kind: DraftKind = "mtp"
    is_free = False

    def __init__(self, head: "DraftHead", vocab_size: int, min_probability: float) -> None:
        self._head, self._vocab_size, self._least = head, vocab_size, min_probability
        self._table: PageTable | None = None
        self._first = 0  # the position of the first of the hidden states that wait
        self._waiting: list[Values] = []
        self._num_waiting = 0
        self._tokens: Ids[int] = ()  # of the whole sequence, which grows

    def extend(self, tokens: Ids[int]) -> None:
        """Does nothing: `computed` receives the tokens together with their hidden states."""

    def computed(
        self, table: PageTable, first: int, hidden: Values, tokens: Ids[int], *, is_prompt: bool
    ) -> None:
        """Copies hidden (tokens, hidden) from `first` on; the caller extends all `tokens`."""
        if table is not self._table or first != self._first + self._num_waiting:
            self._table, self._first = table, first
            self._waiting, self._num_waiting = [], 0
        self._tokens = tokens
        self._waiting.append(hidden.copy())
        self._num_waiting += len(hidden)
        if self._num_waiting > (1 if is_prompt else _MOST_WAITING):
            with suppress(ModelFileError):
                self._fill(table)

    def _fill(self, table: PageTable) -> None:
        """Computes the head's keys and values from all waiting hidden states but the last."""
        hidden, count = np.concatenate(self._waiting), self._num_waiting - 1
        self._head.fill(self._next_ids(count), self._first, table.pages, hidden[:count])
        self._first, self._num_waiting = self._first + count, 1
        self._waiting = [hidden[count:].copy()]

    def _next_ids(self, count: int) -> IntArray:
        """Returns the token after each of the first `count` waiting hidden states."""
        return np.array(self._tokens[self._first + 1 : self._first + 1 + count], np.int32)

    def propose(self, most: int) -> Draft | None:
        table, end = self._table, self._first + self._num_waiting
        most = min(most, self._head.context_size - end)
        is_ready = self._num_waiting > 0 and len(self._tokens) == end + 1
        if table is None or not is_ready or most <= 0:
            return None
        with suppress(ModelFileError):  # which the model's own step would raise, too
            return self._drafted(table, most)
        return None

    def _drafted(self, table: PageTable, most: int) -> Draft | None:
        """Runs the head over the waiting hidden states, then over its own drafts."""
        found = self._first_prediction(table)
        at, step = self._first - 1, int(self._head.follows_drafts)

        def after(token: int) -> Values:
            nonlocal found, at
            ids, at = np.array([token], np.int32), at + step
            found = self._head.predict(ids, at, table.pages, found.hidden[None].copy())
            return found.logits

        return likely_draft(self.kind, found.logits, after, most, self._vocab_size, self._least)

    def _first_prediction(self, table: PageTable) -> "HeadOutput":
        """Runs the head over all waiting hidden states, clears them, and returns its output."""
        ids, hidden = self._next_ids(self._num_waiting), np.concatenate(self._waiting)
        found = self._head.predict(ids, self._first, table.pages, hidden)
        self._first, self._num_waiting = self._first + len(ids), 0
        self._waiting = []
        return found

    def close(self) -> None:
        """Forgets the sequence."""
        self._table, self._waiting, self._num_waiting, self._tokens = None, [], 0, ()
