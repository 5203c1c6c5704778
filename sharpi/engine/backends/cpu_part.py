"""A model's layers on the CPU: recorded at the first use, and replayed from then on.

Prefill and decode are the same program with different numbers of tokens.
"""

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.model_part import Segment, StepOfPart, Values
from sharpi.engine.backends.recorded_part import PartModel, RecordedPart, new_pool, program_limits
from sharpi.engine.kv.window_pages import windows_of
from sharpi.hardware.memory import probe_memory
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.kv_cache import KvCache, StateMemory
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import IntArray, Program, StepArrays, int_pointer, place_pages
from sharpi.ops.cpu.recorder import Recorder
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
    """Runs `own` on the CPU; with `pool` on the threads of another part, which closes them."""

    is_host_memory = True
    cache: KvCache
    states: StateMemory

    def __init__(
        self, own: PartModel, tier: "ExpertTier | None" = None, pool: ThreadPool | None = None
    ) -> None:
        super().__init__(own)
        self._tier, self._gives_outputs, settings = tier, own.gives_outputs, own.settings
        windows = windows_of(own.config) if settings.window_pages else ()
        self.cache = KvCache(own.attention, settings.num_pages, settings.kv_types, windows)
        self._owns_pool = pool is None
        self.pool = pool or new_pool(settings)
        self.states = StateMemory(own.states, settings.num_states)
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
            program.run(self._step, self.pool, threads)
            return
        predicts = self._tier.begin_step(segments, count)
        self._step.num_predicted = count if predicts and is_decode else 0
        start = time.perf_counter()
        program.run(self._step, self.pool, threads)
        self._tier.end_step(count, time.perf_counter() - start)

    def largest(self) -> int:
        assert self._latest is not None
        logits = self._latest.logits[0]
        chosen = int(np.argmax(logits))
        return chosen if np.isfinite(logits[chosen]) else -1

    @property
    def hidden(self) -> Values:
        """A view of the latest step's hidden states (tokens, hidden), if they are kept."""
        assert self._latest is not None
        return self._latest.hidden[: self._step.num_tokens]

    def interrupt(self, *, wanted: bool = True) -> None:
        self.pool.interrupt(wanted=wanted)

    @property
    def progress(self) -> float:
        return self.pool.progress

    def _record(self, max_outputs: int) -> Program:
        s, own = self._settings, self._own
        limits = program_limits(s, s.batch_size, max_outputs, drops_keys=s.kv_keep > 0)
        feed = None if self._tier is None or self._tier.is_mapped else self._tier.feed
        recorder = Recorder(
            limits, self.cache, feed, keeps_router_logits=own.keeps_router_logits,
            states=self.states.layout,
        )  # fmt: skip
        rows = abi.Rows.OUTPUTS if own.takes_outputs else abi.Rows.TOKENS
        incoming = partial(recorder.incoming, own.config.hidden_size, rows)
        program = recorder.finish(*own.record(recorder, incoming))
        if limits.shares_rows and not self._is_placed:
            self._place_weights(program)
            self._is_placed = True
        return program

    def _place_weights(self, program: Program) -> None:
        """Moves the weights to the NUMA nodes of the threads that read them, if RAM has room."""
        spans = program.page_spans(self.pool)
        if sum(span.bytes for span in spans) < probe_memory().total:
            place_pages(spans, self._settings.places)

    def _forget_programs(self) -> None:
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._latest = None

    def close(self) -> None:
        if self._owns_pool:
            self.pool.close()
        self._forget_programs()
