"""Scheduler: several answers of one engine at once, a step at a time.

A step has the next token of every answer that decodes, and some of the prompts of those that do
not yet. Greedy text does not depend on other requests: on the CPU a token's bits do not.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint
from sharpi.engine.engine import Engine
from sharpi.engine.generation import prompt_too_long, shifted
from sharpi.engine.sampling.generation_state import GenerationState
from sharpi.engine.sampling.text_delta import FinishInfo, FinishReason, TextDelta
from sharpi.engine.scheduling.chunk_pace import ChunkPace
from sharpi.engine.scheduling.inbox import Inbox
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.request import Request, RequestId
from sharpi.engine.scheduling.run_queue import RunQueue
from sharpi.errors import UsageError

Share = tuple[Request, int]  # tokens of a step


class Scheduler:
    """`submit` and `cancel` may be called on any thread, all else on the engine's.

    Answers begin in the order they came, at most `max_parallel` at once and as KV pages allow.
    When those run out the youngest gives up its own, and is computed again later. `on_delta` and
    `on_end` are called on the engine's thread; an exception of `on_delta` ends its answer.
    """

    def __init__(self, engine: Engine, max_parallel: int) -> None:
        most = engine.runner.settings.num_parallel
        if not 1 <= max_parallel <= most:
            raise UsageError(f"this engine computes 1 to {most} sequences at once")
        engine.runner.prepare()
        self._engine, self._runner = engine, engine.runner
        self._cache = PrefixCache(engine.runner)
        self._pace = ChunkPace(engine.runner.batch_size)
        self._inbox = Inbox()
        pages = engine.runner.settings.pages_per_sequence
        self._run_queue = RunQueue(self._cache, max_parallel, pages)
        self._suspects: dict[Request, int] = {}
        self.num_generated_tokens = 0
        self.num_prefill_tokens = 0

    def submit(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
        on_delta: Callable[[TextDelta], None],
        on_end: Callable[[FinishInfo], None],
    ) -> RequestId:
        """Asks for an answer; raises UsageError or ContextFullError for what can never be one."""
        tokenizer, vocab_size = self._engine.tokenizer, self._runner.vocab_size
        generation_state = GenerationState(tokenizer, vocab_size, prompt_ids, request, constraint)
        tokens, size = generation_state.prompt, self._runner.context_size
        if len(tokens) >= size:
            if not self._shifts:
                raise prompt_too_long(len(tokens), size)
            tokens = shifted(tokens, size)
        generation_state.start()
        queued = Request(self._inbox.number(), generation_state, tokens, on_delta, on_end)
        self._inbox.put(queued)
        return queued.request_id

    def cancel(self, request_id: RequestId) -> None:
        """Ends an answer before the next step; nothing where it has ended."""
        self._inbox.cancel(request_id)

    @property
    def num_waiting(self) -> int:
        """Answers that have not begun, or lost their pages."""
        return len(self._run_queue.waiting) + len(self._inbox)

    @property
    def num_running(self) -> int:
        """Answers that have their share of steps."""
        return len(self._run_queue.running)

    @property
    def num_pages(self) -> int:
        """Pages of the KV cache."""
        return self._cache.num_pages

    @property
    def pages_in_use(self) -> int:
        """Those of running answers."""
        return self._cache.num_in_use

    @property
    def pages_kept(self) -> int:
        """Those that are kept for prompts to come, until somebody needs them."""
        return self._cache.num_kept

    def drop_cache(self) -> None:
        """Forgets what is kept for prompts to come."""
        self._cache.clear()

    @property
    def _shifts(self) -> bool:
        return self._engine.config.context_shift

    def step(self) -> bool:
        """One step of all that can go on; False when there was nothing to do."""
        num_before = self.num_waiting + self.num_running
        self._take_in()
        self._run_queue.admit()
        shares = self._shares()
        if shares:
            self._run(shares)
        return num_before > 0

    def _take_in(self) -> None:
        requests, cancelled = self._inbox.empty()
        self._run_queue.add(requests)
        if cancelled:
            for request in self._run_queue:
                if request.request_id in cancelled:
                    self._end(request, "cancelled")

    def _shares(self) -> list[Share]:
        """Who computes how much; those that decode first, then prompts as far as there is room."""
        suspects = [request for request in self._suspects if request in self._run_queue.running]
        requests = suspects[:1] or list(self._run_queue.running)
        num_decoding = sum(request.is_decoding for request in requests)
        budget = self._prompt_budget(len(requests), num_decoding)
        shares: list[Share] = []
        for request in requests:
            is_decoding = request.is_decoding
            count = self._share(request, 1 if is_decoding else budget)
            if count:
                shares.append((request, count))
                budget -= 0 if is_decoding else count
        return shares

    def _prompt_budget(self, num_answers: int, num_decoding: int) -> int:
        """Tokens of prompts in the next step, at most."""
        if num_decoding:
            return min(self._runner.batch_size - num_decoding, self._pace.num_tokens)
        return self._runner.prompt_batch if num_answers == 1 else self._runner.batch_size

    def _share(self, request: Request, budget: int) -> int:
        """Tokens that an answer may compute now; one that cannot have any ends."""
        if not budget or request not in self._run_queue.running:
            return 0
        try:
            return self._run_queue.share(request, budget)
        except Exception as error:
            self._end(request, "error", error)
            return 0

    def _run(self, shares: list[Share]) -> None:
        segments = [request.segment(count) for request, count in shares]
        for request, _ in shares:
            assert request.table is not None
            request.table.begin()
        start = time.perf_counter()
        try:
            logits = self._runner.step(segments)
        except Exception as error:
            self._failed(shares, error)
            return
        self._record(shares, time.perf_counter() - start)
        row = 0
        for (request, count), segment in zip(shares, segments, strict=True):
            request.computed(count)
            if request.num_computed >= self._suspects.get(request, 0):
                self._suspects.pop(request, None)
            if len(segment.outputs):
                self._choose(request, logits[row])
                row += 1

    def _record(self, shares: list[Share], seconds: float) -> None:
        num_prompt = sum(count for request, count in shares if not request.is_decoding)
        self.num_prefill_tokens += num_prompt
        self._pace.record(num_prompt, seconds)

    def _failed(self, shares: list[Share], error: Exception) -> None:
        """Those of a step that failed go on alone, until it is known whose fault it was."""
        if len(shares) == 1:
            self._end(shares[0][0], "error", error)
            return
        for request, count in shares:
            self._suspects[request] = request.num_computed + count
            if request.table is not None and not request.table.is_sound:
                request.release()

    def _choose(self, request: Request, logits: npt.NDArray[np.float32]) -> None:
        generation_state = request.generation_state
        try:
            if not request.is_prefilled:
                request.is_prefilled = True
                generation_state.prefilled()
            if generation_state.finish_reason is None:
                self.num_generated_tokens += 1
                request.on_delta(self._next_delta(request, logits))
        except Exception as error:
            self._end(request, "error", error)
            return
        if generation_state.finish_reason is not None:
            self._end(request, generation_state.finish_reason)

    def _next_delta(self, request: Request, logits: npt.NDArray[np.float32]) -> TextDelta:
        generation_state, size = request.generation_state, self._runner.context_size
        delta = generation_state.add(logits)
        if generation_state.finish_reason is not None:
            return delta
        request.tokens.append(generation_state.ids[-1])
        if len(request.tokens) <= size:
            return delta
        if not self._shifts:
            return TextDelta(delta.text + generation_state.end("context").text, delta.tokens)
        request.tokens = shifted(request.tokens, size)
        request.release()
        return delta

    def _end(self, request: Request, reason: FinishReason, error: Exception | None = None) -> None:
        """The last that is heard of an answer; what `on_end` raises is nobody's."""
        self._run_queue.remove(request)
        self._suspects.pop(request, None)
        request.generation_state.finish_reason = reason
        with suppress(Exception):
            request.on_end(request.generation_state.finish_info(error))


__all__ = ["RequestId", "Scheduler"]
