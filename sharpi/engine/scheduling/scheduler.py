"""Scheduler: computes the requests of one engine together, a step at a time.

A step has the next token of every request that decodes, and a part of the prompts of the others.
On the CPU a token's bits do not depend on the other requests, and neither does greedy text.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.constraints.constraint import Constraint
from sharpi.engine.kv.pages import cut_of
from sharpi.engine.sampling.generation_state import (
    FinishInfo,
    FinishReason,
    GenerationState,
    PrefillProgress,
    TextDelta,
)
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.request import ContextLimit, Request, RequestId
from sharpi.engine.scheduling.run_queue import RunQueue
from sharpi.engine.scheduling.steps import (
    Model,
    ScheduledRequest,
    StartedStep,
    StepComposer,
    StepProposal,
    StepsInFlight,
    takes_largest,
)
from sharpi.errors import UsageError
from sharpi.settings import GenerationRequest

if TYPE_CHECKING:
    from sharpi.engine.scheduling.slot_texts import SlotTexts

# The logits of an output, or only the id of the largest.
Choice = npt.NDArray[np.float32] | int


class Scheduler:
    """Runs requests, a step at a time.

    `submit` and `cancel` may be called on any thread, all other methods on the engine's thread,
    which calls `on_delta` and `on_end`. Requests begin in turn, at most `max_parallel` at once and
    as KV pages allow. When these run out, the youngest request is computed again later.
    """

    def __init__(self, model: Model, max_parallel: int, cache: PrefixCache | None = None) -> None:
        most = model.runner.settings.num_parallel
        if not 1 <= max_parallel <= most:
            raise UsageError(f"this engine computes 1 to {most} sequences at once")
        model.runner.prepare()
        self._tokenizer, self._runner = model.tokenizer, model.runner
        self._limit = ContextLimit(model.runner.context_size, shifts=model.config.context_shift)
        self.cache = cache or PrefixCache(model.runner, disk=model.page_store)
        self._numbers = count(1)
        pages = model.runner.settings.pages_per_sequence
        self._run_queue = RunQueue(self.cache, max_parallel, pages)
        self._flight = StepsInFlight(model.runner.num_ranks)
        self._composer = StepComposer(model.runner, self._run_queue, self._fail)
        # The requests of a failed step, and at how many computed tokens each is no longer suspected
        # to be at fault. Until then each runs alone.
        self._suspects: dict[Request, int] = {}
        self._proposer = model.proposer()
        self._num_kept = model.runner.settings.kv_keep
        self.num_generated_tokens = self.num_prefill_tokens = 0

    def submit(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
        on_delta: Callable[[TextDelta], None],
        on_end: Callable[[FinishInfo], None],
        on_progress: Callable[[PrefillProgress], None] | None = None,
        client: str = "",
    ) -> RequestId:
        """Adds a client's request; raises UsageError or ContextFullError if it never fits."""
        tokenizer, vocab_size = self._tokenizer, self._runner.vocab_size
        generation_state = GenerationState(tokenizer, vocab_size, prompt_ids, request, constraint)
        return self.enqueue(generation_state, on_delta, on_end, on_progress, client)

    def enqueue(
        self,
        generation_state: GenerationState,
        on_delta: Callable[[TextDelta], None],
        on_end: Callable[[FinishInfo], None],
        on_progress: Callable[[PrefillProgress], None] | None = None,
        client: str = "",
    ) -> RequestId:
        """Adds the request of a new generation; raises ContextFullError for too long a prompt."""
        tokens = self._limit.fitted(generation_state.prompt)
        generation_state.start()
        number, cut = RequestId(next(self._numbers)), cut_of(len(tokens), self._num_kept)
        self._run_queue.put(
            Request(number, generation_state, tokens, on_delta, on_end, on_progress, client, cut)
        )
        return number

    def cancel(self, request_id: RequestId) -> None:
        """Ends a request before the next step; does nothing if it has ended."""
        self._run_queue.cancel(request_id)

    def end(self, request_id: RequestId) -> None:
        """Ends a request now, on the engine's thread; does nothing if it has ended."""
        self.cancel(request_id)
        for request in self._run_queue.take_in():
            self._end(request, "cancelled")

    @cached_property
    def slots(self) -> "SlotTexts":
        from sharpi.engine.scheduling.slot_texts import SlotTexts

        return SlotTexts(self.cache, self._runner, self._run_queue.slot_texts)

    @property
    def num_waiting(self) -> int:
        """The number of requests that have not begun, or lost their pages."""
        return self._run_queue.num_waiting

    @property
    def num_running(self) -> int:
        return len(self._run_queue.running)

    def step(self) -> bool:
        """Computes a step, or begins or ends one of several ranks; False without requests."""
        queue, flight = self._run_queue, self._flight
        has_work = bool(queue.running or queue.num_waiting or flight)
        for request in queue.take_in():
            self._end(request, "cancelled")
        if queue.waiting:
            queue.admit()
        if batch := self._composer.next(self._candidates()):
            self._begin(self._with_proposals(batch))
        if flight and (flight.is_full or not batch):
            self._finish(flight.popleft())
        if self.cache.disk is not None:
            self.cache.disk.queue.copy_some()
        return has_work

    def _candidates(self) -> Sequence[Request]:
        """Returns the requests that may take part in the next step: a suspect, or else all."""
        requests = self._flight.idle(self._run_queue.running)
        if not self._suspects:
            return requests
        return [request for request in requests if request in self._suspects][:1] or requests

    def _with_proposals(self, batch: list[ScheduledRequest]) -> StepProposal:
        """Adds proposed tokens, unless requests of a failed step are being run alone."""
        running = self._run_queue.running
        if self._suspects:
            self._proposer.pause(running)
            return StepProposal(batch, may_run_ahead=False)
        return self._proposer.propose(batch, min(self._runner.num_ranks, len(running)))

    def _begin(self, proposal: StepProposal) -> None:
        """Begins a step; a request without outputs counts as computed from here on."""
        batch, proposed, may_run_ahead = proposal
        segments = [scheduled.segment() for scheduled in batch]
        start = time.perf_counter()
        try:
            is_greedy = takes_largest(batch)
            continues_greedily = is_greedy and may_run_ahead
            step = self._runner.begin(
                segments, wants_largest=is_greedy, continues_greedily=continues_greedily
            )
        except Exception as error:
            self._failed(batch, error)
            return
        self.num_prefill_tokens += self._composer.record(batch, time.perf_counter() - start)
        for scheduled, segment in zip(batch, segments, strict=True):
            if not len(segment.outputs):
                self._computed(scheduled)
        tables = [scheduled.request.table for scheduled in batch]
        self._flight.append(StartedStep(batch, segments, tables, step, start, proposed))

    def _finish(self, started: StartedStep) -> None:
        """Finishes a step, and chooses the next tokens of requests that have not ended since."""
        rows = [row for row, each in enumerate(started.segments) if len(each.outputs)]
        valid = [row for row in range(len(started.batch)) if started.is_wanted(row)]
        wanted = [row for row in rows if row in valid]
        if not wanted and not (valid and self._proposer.follows_prompts):
            self._runner.discard(started.step)
            return
        try:
            choices = self._choices(started)
        except Exception as error:
            self._failed([started.batch[row] for row in wanted or valid], error)
            return
        self._proposer.computed(started)
        seconds = self._flight.seconds_of(started)
        end = 0
        for row in rows:
            first, end = end, end + len(started.segments[row].outputs)
            if row in wanted:
                self._take(started.batch[row], choices[first:end])
        self._proposer.learn(started, seconds)

    def _choices(self, started: StartedStep) -> Sequence[Choice] | npt.NDArray[np.float32]:
        logits = self._runner.finish(started.step)
        return [self._runner.largest()] if started.step.step.wants_largest else logits

    def _take(
        self, scheduled: ScheduledRequest, choices: Sequence[Choice] | npt.NDArray[np.float32]
    ) -> None:
        """Records the computed tokens, and chooses next ones while the proposed ones are right."""
        request = scheduled.request
        self._computed(scheduled)
        for choice, proposed in zip(choices, (*scheduled.proposed, None), strict=False):
            self._choose(request, choice)
            if proposed is None or not request.continues_with(proposed):
                break
            request.computed(1)
        if request.table is not None:
            request.table.drop_rejected()

    def _computed(self, scheduled: ScheduledRequest) -> None:
        request = scheduled.request
        request.computed(scheduled.num_tokens)
        if self._suspects and request.num_computed >= self._suspects.get(request, 0):
            self._suspects.pop(request, None)

    def _failed(self, batch: list[ScheduledRequest], error: Exception) -> None:
        """Ends a failed step's request; if it had several, each runs alone to find the cause."""
        if len(batch) == 1:
            self._fail(batch[0].request, error)
            return
        for request, num_tokens, *_ in batch:
            self._suspects[request] = request.num_computed + num_tokens
            if request.table is not None and not request.table.is_valid:
                request.release()

    def _choose(self, request: Request, choice: Choice) -> None:
        generation_state = request.generation_state
        try:
            if not request.is_prefilled:
                request.is_prefilled = True
                generation_state.prefilled()
            if generation_state.finish_reason is None:
                self.num_generated_tokens += 1
                request.on_delta(self._next_delta(request, choice))
        except Exception as error:
            self._fail(request, error)
            return
        if generation_state.finish_reason is not None:
            self._end(request, generation_state.finish_reason)

    def _next_delta(self, request: Request, choice: Choice) -> TextDelta:
        generation_state = request.generation_state
        if isinstance(choice, int):
            delta = generation_state.add_largest(choice)
        else:
            delta = generation_state.add(choice)
        if generation_state.finish_reason is not None:
            return delta
        request.tokens.append(generation_state.ids[-1])
        return self._limit.checked(request, delta)

    def _fail(self, request: Request, error: Exception) -> None:
        self._end(request, "error", error)

    def _end(self, request: Request, reason: FinishReason, error: Exception | None = None) -> None:
        """Ends a request; an exception of `on_end` is ignored."""
        self._run_queue.remove(request)
        self._suspects.pop(request, None)
        request.generation_state.finish_reason = reason
        with suppress(Exception):
            request.on_end(request.generation_state.finish_info(error))
        self._proposer.end(request)


__all__ = ["Model", "RequestId", "Scheduler"]
