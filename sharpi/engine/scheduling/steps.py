"""The steps of a scheduler: which requests take part in the next, and those that have begun.

Where several ranks run the layers, requests are dealt out to as many steps as there are ranks, so
that all ranks work at once. On one machine a step ends before the next begins.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.runner import Runner, StepInFlight
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.request import Request
from sharpi.engine.scheduling.run_queue import RunQueue
from sharpi.settings import RunConfig
from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache
    from sharpi.speculation.speculator import StepDrafts

_STEP_SECONDS = 0.2  # the target for a step of prompt tokens and decoded tokens together
_LEAST_TOKENS, _FIRST_TOKENS = 32, 64
# A step of few prompt tokens may already read most experts, so that more tokens cost little. A step
# may take this many times as long as one of the fewest prompt tokens.
_MOST_TIMES = 2.0
_ROOM_TO_DOUBLE = 1.6
_FORGOTTEN_AFTER = 32  # steps after which a size that took too long is tried again
_NEWEST_SHARE = 0.3


class ScheduledRequest(NamedTuple):
    """A request's tokens in a step; a decoding one may have `proposed` tokens to be checked."""

    request: Request
    num_tokens: int
    is_prompt: bool
    proposed: tuple[int, ...] = ()

    def segment(self) -> Segment:
        if self.proposed:
            return self.request.checking_segment(self.proposed)
        return self.request.segment(self.num_tokens)


def takes_largest(batch: Sequence[ScheduledRequest]) -> bool:
    """Returns True if the step is one greedy request's next token; then no logits are copied."""
    request, num_tokens, is_prompt, proposed = batch[0]
    is_alone = len(batch) == num_tokens == 1 and not is_prompt and not proposed
    return is_alone and request.generation_state.takes_largest


class ChunkPace:
    """Doubles or halves a prompt's chunk size by the seconds of steps, up to `batch_size`."""

    def __init__(self, batch_size: int) -> None:
        sizes = takewhile(lambda size: size < batch_size, (_LEAST_TOKENS << i for i in range(32)))
        self._sizes = [*sizes, batch_size]
        self._at = sum(size <= _FIRST_TOKENS for size in self._sizes[1:])
        self._seconds: dict[int, float] = {}
        self._num_steps = 0

    @property
    def num_tokens(self) -> int:
        """The number of prompt tokens in the next step, if other requests decode in it."""
        return self._sizes[self._at]

    def record(self, num_tokens: int, seconds: float) -> None:
        if num_tokens not in self._sizes:
            return
        before = self._seconds.get(num_tokens, seconds)
        self._seconds[num_tokens] = before + (seconds - before) * _NEWEST_SHARE
        if num_tokens == self.num_tokens:
            self._follow(self._seconds[num_tokens])

    def _follow(self, seconds: float) -> None:
        self._num_steps += 1
        if self._num_steps % _FORGOTTEN_AFTER == 0:
            for size in self._sizes[self._at + 1 :]:
                self._seconds.pop(size, None)
        limit = max(_STEP_SECONDS, _MOST_TIMES * self._seconds.get(self._sizes[0], 0.0))
        if seconds > limit:
            self._at = max(0, self._at - 1)
        elif self._at + 1 < len(self._sizes):
            larger = self._seconds.get(self._sizes[self._at + 1], seconds * _ROOM_TO_DOUBLE)
            self._at += larger <= limit


class StepComposer:
    """Divides a step among requests, decoding ones first; `fail` gets those that cannot go on."""

    def __init__(
        self, runner: Runner, queue: RunQueue, fail: Callable[[Request, Exception], None]
    ) -> None:
        self._runner, self._queue, self._fail = runner, queue, fail
        self._pace = ChunkPace(runner.batch_size)

    def next(self, requests: Sequence[Request]) -> list[ScheduledRequest]:
        """Returns what these running requests compute next, without those that have to wait."""
        prompts = [request for request in requests if not request.is_decoding]
        num_others = len(self._queue.running) - len(prompts)
        budget = self._prompt_budget(prompts, num_others) if prompts else 0
        batch: list[ScheduledRequest] = []
        for request in requests:
            is_prompt = request in prompts
            count = self._count(request, budget if is_prompt else 1)
            if count:
                batch.append(ScheduledRequest(request, count, is_prompt))
                budget -= count if is_prompt else 0
        return batch

    def record(self, batch: Sequence[ScheduledRequest], seconds: float) -> int:
        num_prompt = sum([scheduled.num_tokens for scheduled in batch if scheduled.is_prompt])
        if num_prompt:
            self._pace.record(num_prompt, seconds)
        return num_prompt

    def _prompt_budget(self, prompts: Sequence[Request], num_others: int) -> int:
        """Returns the most prompt tokens in a step with `num_others` decoding requests."""
        if num_others:
            return min(self._runner.batch_size - num_others, self._pace.num_tokens)
        chunk = self._runner.prompt_chunk(sum(len(request.tokens) for request in prompts))
        return chunk if len(prompts) == 1 else min(chunk, self._runner.batch_size)

    def _count(self, request: Request, budget: int) -> int:
        """Returns how many tokens a request may compute in this step; reserves their pages."""
        if not budget or request not in self._queue.running:
            return 0
        try:
            return self._queue.reserve_tokens(request, budget)
        except Exception as error:
            self._fail(request, error)
            return 0


class StartedStep(Struct, frozen=True):
    """A step that has begun: its batch, and the page tables in which they are computed."""

    batch: Sequence[ScheduledRequest]
    segments: Sequence[Segment]
    tables: Sequence[PageTable | None]
    step: StepInFlight
    start: float  # of the step, in seconds
    proposed: "StepDrafts | None" = None  # None where no drafts were looked for

    def is_wanted(self, row: int) -> bool:
        """Returns True if the request of row `row` has neither ended nor lost its pages since."""
        return self.batch[row].request.table is self.tables[row]

    def awaits(self, request: Request) -> bool:
        """Returns True if this step computes the logits of the request's next token."""
        return any(
            scheduled.request is request and len(self.segments[row].outputs) and self.is_wanted(row)
            for row, scheduled in enumerate(self.batch)
        )


class StepsInFlight(deque[StartedStep]):
    """The steps that have begun but not ended, at most `num_ranks`; they end in this order."""

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        self._num_ranks = num_ranks
        self._last_end = 0.0

    @property
    def is_full(self) -> bool:
        """True if a step must end before another begins."""
        return len(self) >= self._num_ranks

    def seconds_of(self, started: StartedStep) -> float:
        """Returns the duration of a step that just ended, since the one before; once each."""
        start, self._last_end = max(started.start, self._last_end), time.perf_counter()
        return self._last_end - start

    def idle(self, requests: Sequence[Request]) -> list[Request]:
        """Returns requests whose next token no begun step computes, a rank's share at most."""
        if not self and self._num_ranks == 1:
            return list(requests)
        idle = [each for each in requests if not any(step.awaits(each) for step in self)]
        return idle[: -(-len(requests) // self._num_ranks)]


class StepProposal(NamedTuple):
    """The batch with proposed tokens; a GPU may begin the next step early if `may_run_ahead`."""

    batch: list[ScheduledRequest]
    proposed: "StepDrafts | None" = None  # None where no drafts were looked for
    may_run_ahead: bool = True


class TokenProposer:
    """The socket for what proposes next tokens, which a step then checks; this one has none.

    `follows_prompts`: it needs the hidden states of steps without outputs, too.
    """

    follows_prompts = False

    def propose(self, batch: list[ScheduledRequest], num_steps: int) -> StepProposal:
        """Returns the batch with proposed tokens; `num_steps` are usually in progress."""
        return StepProposal(batch)

    def computed(self, started: StartedStep) -> None:
        """Is called after a step, before its tokens are chosen."""

    def learn(self, started: StartedStep, seconds: float) -> None:
        """Is called when the tokens of a step that took `seconds` are chosen."""

    def pause(self, requests: Iterable[Request]) -> None:
        """Proposes nothing for these requests until `propose` is called again."""

    def end(self, request: Request) -> None: ...


class Model(Protocol):
    """The parts of an engine that a scheduler uses to compute requests."""

    config: RunConfig  # the user's settings
    runner: Runner  # computes the steps
    tokenizer: Tokenizer  # turns tokens into text

    @property
    def page_store(self) -> "PromptCache | None":
        """Keeps pages for later runs; None without one."""

    def proposer(self) -> TokenProposer: ...
