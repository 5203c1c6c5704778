"""Runs a loaded model: tokens in, logits out, over a paged KV cache, on one processor or more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sharpi.engine.backends.model_part import (
    KeptRoutes,
    ModelPart,
    RemoteLayers,
    Segment,
    StepObserver,
    StepOfPart,
    StepRoutes,
    Values,
    batches,
)
from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.kv.pages import Pool, state_pools
from sharpi.engine.kv.window_pages import WindowPages
from sharpi.engine.sampling.sampler import NOT_FINITE
from sharpi.errors import ModelFileError
from sharpi.ops.cpu.program import IntArray
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.ops.cuda.replay.step_outputs import StepValues

_SCORING_LOGITS_BYTES = 64 << 20  # of one batch when every token's logits are wanted
# A prompt goes through several ranks in chunks: with few, the last rank waits long for the first
# chunk; small ones read the weights more often.
_CHUNKS_FOR_A_RANK, _LEAST_CHUNK = 24, 128
_NONE = np.zeros((0, 0), np.float32)


class StepInFlight(NamedTuple):
    """A step that has begun: its values, or its number if other ranks compute them."""

    step: StepOfPart
    max_outputs: int
    number: int | None  # None where nothing is to be waited for
    values: "StepValues"


class Runner:
    """A loaded model as a sequence of parts, with the pools of KV pages and recurrent states.

    `memory` reads and copies the contents of pages and states in all parts. `observers` see each
    step. With `returns_hidden`, `hidden` has the values of all tokens, also from other machines.
    """

    def __init__(
        self,
        settings: EngineSettings,
        vocab_size: int,
        parts: Sequence[ModelPart],
        memory: ModelMemory,
        observers: Sequence[StepObserver] = (),
        *,
        has_states: bool = False,
        remote: RemoteLayers | None = None,
        returns_hidden: bool = False,
    ) -> None:
        self.settings, self.vocab_size = settings, vocab_size
        self.parts, self.memory, self._observers = tuple(parts), memory, tuple(observers)
        self._remote = remote  # one of the parts, if other machines run some layers
        self._returns_hidden = returns_hidden
        self._kept: dict[ModelPart, StepRoutes] = {}
        self._num_tokens = 0  # of the current step
        self._usual_outputs = settings.num_outputs
        self.pages = Pool(settings.num_pages)
        self.windows = WindowPages(
            settings.window, settings.window_pages, memory.drop_windows, settings.batch_size
        )
        self.states, self.states_after = state_pools(settings, has_states=has_states)

    @property
    def context_size(self) -> int:
        return self.settings.context_size

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    @property
    def prompt_batch(self) -> int:
        """The most tokens of a step of one sequence, of which only the last may have an output."""
        sizes = (part.max_tokens for part in self.parts)
        return min((size for size in sizes if size > self.batch_size), default=self.batch_size)

    @property
    def num_ranks(self) -> int:
        return 1 if self._remote is None else self._remote.num_ranks

    def prompt_chunk(self, num_tokens: int) -> int:
        """Returns the most tokens of a prompt's step; fewer for several ranks, so that all work."""
        if self._remote is None:
            return self.prompt_batch
        wanted = num_tokens // (_CHUNKS_FOR_A_RANK * (self.num_ranks - 1))
        return min(self.batch_size, max(_LEAST_CHUNK, -(-wanted // 64) * 64))

    @property
    def is_ahead(self) -> bool:
        """True if a GPU has begun the next step before the host knows its token; see `begin`."""
        return self.parts[-1].is_ahead

    @property
    def scoring_batch(self) -> int:
        """The number of tokens of a batch if the logits of all its tokens are wanted."""
        fit = _SCORING_LOGITS_BYTES // (4 * self.vocab_size)
        return max(1, min(self.batch_size, fit))

    def step(self, segments: Sequence[Segment], *, wants_largest: bool = False) -> Values:
        """Computes next tokens of sequences; returns logits (outputs, vocabulary), a view.

        There are at most `num_parallel` segments, of `batch_size` tokens together; one alone may
        have `prompt_batch` tokens if only the last has an output. With `wants_largest`, for one
        output, only `largest` may be called. Raises ModelFileError if an expert could not be read.
        """
        return self.finish(self.begin(segments, wants_largest=wants_largest))

    def begin(
        self,
        segments: Sequence[Segment],
        *,
        wants_largest: bool = False,
        continues_greedily: bool = False,
    ) -> StepInFlight:
        """Begins a step, which `finish` ends; see `step`.

        With `continues_greedily` a GPU may begin the next step at once, with the token of
        `largest`. Other ranks have up to `num_ranks` steps in progress, which end in the same
        order.
        """
        num_tokens = num_outputs = 0
        for segment in segments:
            num_tokens += len(segment.ids)
            num_outputs += len(segment.outputs)
        self._num_tokens = num_tokens
        if continues_greedily and not self.memory.is_host_memory:
            continues_greedily = not any(each.reads_routes for each in self._observers)
        step = StepOfPart(tuple(segments), num_tokens, None, wants_largest, continues_greedily)
        usual = self._usual_outputs
        max_outputs = usual if num_outputs <= usual else self.scoring_batch
        started = self._run_parts(step, max_outputs)
        for observer in self._observers:
            observer.step(step.segments, self)
        self._num_tokens = 0
        return started

    def _run_parts(self, step: StepOfPart, max_outputs: int) -> StepInFlight:
        """Runs the parts in turn, up to one whose layers other machines run."""
        values: StepValues | None = step.incoming
        self._kept = {}
        for part in self.parts:
            if values is not step.incoming:
                step = step._replace(incoming=values)
            if part is self._remote:
                return StepInFlight(step, max_outputs, self._send(step, max_outputs), _NONE)
            if part.splits_steps or step.num_tokens <= part.max_tokens:
                values = part.run(step, max_outputs)
            else:
                values = self._in_batches(part, step, max_outputs)
        assert values is not None  # there is a part at least
        return StepInFlight(step, max_outputs, None, values)

    def _send(self, step: StepOfPart, max_outputs: int) -> int | None:
        """Sends a step to the next rank; returns its number, None if it has no outputs."""
        assert self._remote is not None
        if not self._returns_hidden:
            return self._remote.send(step, max_outputs)
        every = (
            segment._replace(outputs=np.arange(len(segment.ids), dtype=np.int32))
            for segment in step.segments
        )
        return self._remote.send(step._replace(segments=tuple(every)), self.batch_size)

    def run_layers(self, step: StepOfPart, max_outputs: int) -> "StepValues":
        """Runs this machine's layers for a step that another rank has begun."""
        values = self._run_parts(step, max_outputs).values
        for observer in self._observers:
            observer.step(step.segments, self)
        return values

    def finish(self, started: StepInFlight) -> Values:
        """Waits for the end of a step; returns its logits, a view that the next step overwrites."""
        values = started.values
        if started.number is not None and self._remote is not None:
            values = self._remote.receive(started.number)
            for part in self.parts[self.parts.index(self._remote) + 1 :]:
                values = part.run(started.step._replace(incoming=values), started.max_outputs)
        assert isinstance(values, np.ndarray)  # the last part's are on the host
        return values

    def discard(self, started: StepInFlight) -> None:
        """Ends a step without waiting for its outputs, which are dropped."""
        if started.number is not None and self._remote is not None:
            self._remote.discard(started.number)

    def _in_batches(self, part: ModelPart, step: StepOfPart, max_outputs: int) -> Values:
        """Runs a long prompt through the first part, in batches of the part's `max_tokens`."""
        kept = self._kept[part] = KeptRoutes(trims=False)
        (segment,) = step.segments
        values = []
        for own, batch in batches(segment, part.max_tokens):
            given = part.run(StepOfPart((batch,), len(batch.ids)), max_outputs)
            assert isinstance(given, np.ndarray)
            values.append(given.copy())
            kept.add({own.start: batch}, part)
        return np.concatenate(values)

    def largest(self) -> int:
        """Returns the id of the largest logit, after `wants_largest`; raises ModelFileError."""
        chosen = self.parts[-1].largest()
        if chosen < 0:
            raise ModelFileError(NOT_FINITE)
        return chosen

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes steps raise KeyboardInterrupt between two layers while `wanted`; for any thread."""
        for part in self.parts:
            part.interrupt(wanted=wanted)

    @property
    def progress(self) -> float:
        """The current step's tokens times the fraction of layers done; any thread may read it."""
        return self._num_tokens * sum(part.progress for part in self.parts) / len(self.parts)

    @property
    def routes(self) -> list[IntArray]:
        """The last step's expert ids (rows, used) by MoE layer, perhaps with older rows."""
        return [routes for part in self.parts for routes in self._kept.get(part, part).routes]

    @property
    def router_logits(self) -> list[Values]:
        return [
            logits for part in self.parts for logits in self._kept.get(part, part).router_logits
        ]

    @property
    def hidden(self) -> Values:
        return self.parts[-1].hidden

    def prepare(self) -> None:
        for part in self.parts:
            part.prepare()

    def leave_ranks(self) -> None:
        """Ends the run on the other ranks, which then send their reports; `close` does so, too."""
        if self._remote is not None:
            self._remote.close()

    def close(self) -> None:
        for part in self.parts:
            part.close()
