"""A model's layers on the CPU: recorded at the first use, and replayed from then on.

Prefill and decode are the same program with different numbers of tokens.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.model_part import Segment, StepOfPart, Values
from sharpi.engine.backends.recorded_part import RecordedPart, program_limits
from sharpi.engine.kv.window_pages import windows_of
from sharpi.hardware.memory import probe_memory
from sharpi.model.config import ModelConfig
from sharpi.model.transformer import Transformer
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.kv_cache import KvCache, StateMemory
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import IntArray, Program, StepArrays, int_pointer, place_pages
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.recurrent import num_states
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier


class KeptInputs:
    """The arrays of `abi.Step` that only steps with dropped keys and values need."""

    def __init__(self, settings: EngineSettings) -> None:
        self._slots = np.zeros(settings.batch_size, np.int32)
        self._num_kept = np.zeros(settings.num_parallel, np.int32)
        self._pages = np.zeros((settings.num_parallel, settings.pages_per_sequence), np.int32)

    def join(self, step: abi.Step) -> None:
        step.slots = int_pointer(self._slots)
        step.num_kept = int_pointer(self._num_kept)
        step.kept_table = int_pointer(self._pages)

    def write(self, row: int, tokens: slice, positions: IntArray, segment: Segment) -> None:
        """Writes a segment, whose tokens have `positions` (tokens,), as sequence `row`."""
        self._slots[tokens] = positions - segment.num_dropped
        self._num_kept[row] = segment.num_kept
        if segment.kept_pages is not None:
            self._pages[row, : len(segment.kept_pages)] = segment.kept_pages


class CpuPart(RecordedPart[Program]):
    """Runs `layers`; embeds the tokens if layer 0 is among them.

    With `pool` it uses the threads of another part on this machine; that part closes them. With
    `keeps_hidden`, `hidden` holds every token's values after the output norm.
    """

    is_host_memory = True
    cache: KvCache
    states: StateMemory

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        *,
        layers: range | None = None,
        has_output: bool | None = None,
        tier: "ExpertTier | None" = None,
        pool: ThreadPool | None = None,
        keeps_router_logits: bool = False,
        keeps_hidden: bool = False,
    ) -> None:
        super().__init__(config, weights, settings, layers, has_output)
        self._keeps_router_logits, self._keeps_hidden = keeps_router_logits, keeps_hidden
        self._tier = tier
        shapes = [shape for shape in config.attention if shape.layer in self._layers]
        windows = windows_of(config) if settings.window_pages else ()
        self.cache = KvCache(shapes, settings.num_pages, settings.kv_types, windows)
        num_threads = max(settings.num_threads, settings.num_batch_threads)
        self._owns_pool = pool is None
        self._pool = pool or ThreadPool(num_threads, settings.places)
        shapes_of_states = [s for s in config.states if s.layer in self._layers]
        count = num_states(settings.num_parallel, settings.max_drafts)
        self.states = StateMemory(shapes_of_states, count)
        self._is_placed = False
        self._inputs = StepArrays(
            settings.batch_size, settings.num_parallel, settings.pages_per_sequence
        )
        self._step = self._inputs.step
        self._kept = KeptInputs(settings) if settings.kv_keep else None
        if self._kept is not None:
            self._kept.join(self._step)

    @property
    def max_tokens(self) -> int:
        return self._settings.batch_size

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        if self._tier is not None and self._tier.switch_source():
            self._forget_programs()
        program = self._programs.get(max_outputs) or self._program(max_outputs)
        self._latest = program
        num_tokens = num_outputs = 0
        for row, segment in enumerate(step.segments):
            self._write(row, segment, num_tokens, num_outputs)
            num_tokens += len(segment.ids)
            num_outputs += len(segment.outputs)
        self._step.num_tokens, self._step.num_outputs = num_tokens, num_outputs
        if step.incoming is not None:
            assert isinstance(step.incoming, np.ndarray)  # no GPU precedes this part
            program.incoming[: len(step.incoming)] = step.incoming
        self._run(program, step.segments)
        return program.logits[: num_outputs if self._gives_outputs else num_tokens]

    def _write(self, row: int, segment: Segment, first: int, first_output: int) -> None:
        """Writes `segment` into the next step as sequence `row`."""
        inputs = self._inputs
        rows = inputs.write(row, first, segment.ids, segment.position, segment.pages)
        if self._kept is not None:
            self._kept.write(row, rows, inputs.positions[rows], segment)
        inputs.request_outputs(first_output, segment.outputs + first, len(segment.outputs))
        if segment.state is not None:
            inputs.states[row] = self.states.addresses[segment.state]
            self._write_states_after(segment, first)

    def _write_states_after(self, segment: Segment, first: int) -> None:
        """Writes, for each token, the address where recurrent layers store the state after it."""
        if segment.states_after:
            for row, state in enumerate(segment.states_after, first):
                self._inputs.states_after[row] = self.states.addresses[state]
        else:
            # Kernels read the entry of a sequence's first token only.
            self._inputs.states_after[first] = None

    def _run(self, program: Program, segments: tuple[Segment, ...]) -> None:
        count = self._step.num_tokens
        is_decode = count - sum([each.num_drafts for each in segments]) == len(segments)
        s = self._settings
        threads = s.num_threads if is_decode else s.num_batch_threads
        if self._tier is None:
            program.run(self._step, self._pool, threads)
            return
        predicts = self._tier.begin_step(segments, count)
        self._step.num_predicted = count if predicts and is_decode else 0
        start = time.perf_counter()
        program.run(self._step, self._pool, threads)
        self._tier.end_step(count, time.perf_counter() - start)

    def largest(self) -> int:
        assert self._latest is not None
        logits = self._latest.logits[0]
        chosen = int(np.argmax(logits))
        return chosen if np.isfinite(logits[chosen]) else -1

    @property
    def hidden(self) -> Values:
        """A view of the latest step's hidden states (tokens, hidden); needs `keeps_hidden`."""
        assert self._latest is not None
        return self._latest.hidden[: self._step.num_tokens]

    @property
    def pool(self) -> ThreadPool:
        return self._pool

    def interrupt(self, *, wanted: bool = True) -> None:
        self._pool.interrupt(wanted=wanted)

    @property
    def progress(self) -> float:
        return self._pool.progress

    def _record(self, max_outputs: int) -> Program:
        s = self._settings
        limits = program_limits(s, s.batch_size, max_outputs, drops_keys=s.kv_keep > 0)
        feed = None if self._tier is None or self._tier.is_mapped else self._tier.feed
        keeps = self._keeps_router_logits
        recorder = Recorder(
            limits, self.cache, feed, keeps_router_logits=keeps, states=self.states.layout
        )
        model: Transformer[Buffer] = Transformer(
            self._config, self._weights, recorder, trims_last_layer=not keeps,
            keeps_hidden=self._keeps_hidden,
        )  # fmt: skip
        x = self._begin(model, recorder)
        if self._layers:
            x = model.layers(x, self._layers)
        result = model.logits(x) if self._has_output else x
        program = recorder.finish(result, model.hidden)
        if limits.shares_rows and not self._is_placed:
            self._place_weights(program)
            self._is_placed = True
        return program

    def _begin(self, model: Transformer[Buffer], recorder: Recorder) -> Buffer:
        """Returns the input: embedded tokens for layer 0, else the previous part's values."""
        if self._layers.start == 0:
            return model.embed()
        is_output = self._layers.start == self._config.num_layers and not self._keeps_hidden
        rows = abi.Rows.OUTPUTS if is_output else abi.Rows.TOKENS
        return recorder.incoming(self._config.hidden_size, rows)

    def _place_weights(self, program: Program) -> None:
        """Moves the weights to the NUMA nodes of the threads that read them, if RAM has room."""
        spans = program.page_spans(self._pool)
        if sum(span.bytes for span in spans) < probe_memory().total:
            place_pages(spans, self._settings.places)

    def _forget_programs(self) -> None:
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._latest = None

    def close(self) -> None:
        if self._owns_pool:
            self._pool.close()
        self._forget_programs()
