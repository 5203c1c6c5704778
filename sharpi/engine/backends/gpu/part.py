"""A model's layers on a GPU: the last layers and the output, or layers before another GPU's."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from sharpi.device.counting import CountingDevice
from sharpi.device.device import Device
from sharpi.device.launch import Kernel, Memory
from sharpi.engine.backends.expert_tier import ExpertTier
from sharpi.engine.backends.gpu.part_memory import PartMemory, library_bytes, pages_of, runs_ahead
from sharpi.engine.backends.gpu.passes import GpuPass, GpuPrompts, gpu_passes
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.engine.backends.gpu.tier import GpuTier, TierSteps
from sharpi.engine.backends.model_part import (
    KeptRoutes,
    Segment,
    StepOfPart,
    StepRoutes,
    Values,
    of_outputs,
    step_rows,
)
from sharpi.engine.backends.recorded_part import PartModel, RecordedPart
from sharpi.errors import DeviceError
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.kv_cache import GpuKvCache
from sharpi.ops.cuda.recorded import Call, RecordedTensor
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.prompt_program import PromptProgram
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs
from sharpi.ops.cuda.replay.step_outputs import StepValues, on_host
from sharpi.tiers.expert_memory import NO_STASH
from sharpi.tiers.settings import EngineSettings


class GpuPart(RecordedPart[GpuProgram]):
    """Runs `own` on a GPU.

    With `keeps_results` another GPU runs the next layers, and reads this part's result from this
    GPU's memory. `slots` describes the layers whose experts are not all on the GPU. `tier` has the
    RAM slots of experts that the CPU computes; None if RAM holds all experts. `embedding` is
    page-locked RAM where the GPU reads the embedding; None if its own memory has the embedding.
    """

    is_host_memory = False
    splits_steps = True
    cache: GpuKvCache
    states: GpuStates
    device: Device
    gpu_tier: GpuTier | None
    hidden: Values = np.zeros((0, 0), np.float32)

    def __init__(
        self,
        device: Device,
        own: PartModel,
        *,
        keeps_results: bool = False,
        slots: GpuSlots | None = None,
        tier: ExpertTier | None = None,
        embedding: Memory | None = None,
    ) -> None:
        super().__init__(own)
        self.device, self._keeps_results = device, keeps_results
        self.hidden = np.zeros((0, own.config.hidden_size), np.float32)
        plan = NO_STASH if slots is None or own.keeps_router_logits else slots.stash
        self._prompts = GpuPrompts(plan, own.settings.batch_size)
        self._memory = memory = PartMemory(device, own, slots, tier, self._prompts.counts)
        if embedding is not None:
            memory.weights.register_mapped(own.weights.embedding.data, embedding)
        self.cache, self.states, self.gpu_tier = memory.cache, memory.states, memory.gpu_tier
        self._tier_steps = TierSteps(memory.gpu_tier, tier)
        trims = own.gives_outputs and not (own.keeps_router_logits or own.keeps_hidden)
        self._trims = trims and own.weights.layers[-1].experts is not None
        self._kept: StepRoutes | None = None

    @property
    def max_tokens(self) -> int:
        self._program(self._settings.num_outputs)
        return self._prompts.max_tokens

    def run(self, step: StepOfPart, max_outputs: int) -> StepValues:
        """Runs short segments together in one pass, and each prompt's segment in its own passes."""
        if self._memory.growth is not None:
            self._grow_cache(pages_of(step.segments))
        if self._memory.frames is not None:
            for segment in step.segments:
                end = segment.position + len(segment.ids)
                self._memory.frames.begin(segment.position, end, segment.pages)
        if self._own.takes_outputs:
            step = of_outputs(step)
        program = self._program(max_outputs)
        if program is not self._latest:
            self._discard_next()
        self._latest = program
        if len(step.segments) == 1:
            self._kept = prompt = self._prompts.takes(step.num_tokens)
            if prompt is not None:
                self._discard_next()
                return self._run(program, step.segments, step.incoming, prompt=prompt)
        passes = list(gpu_passes(step.segments, self._settings.batch_size, self._most_shared))
        if len(passes) > 1:
            return self._run_passes(program, passes, step.incoming)
        self._kept = None
        largest = step.wants_largest and self._own.has_output
        is_wanted = largest and step.continues_greedily and runs_ahead(self._own)
        may = is_wanted and self._memory.features.has("graphs") and self._tier_steps.may_run_ahead
        values = self._run(
            program, step.segments, step.incoming, largest=largest, reads=not self._keeps_results,
            runs_ahead=may,
        )  # fmt: skip
        return program.results if self._keeps_results else values

    @property
    def _most_shared(self) -> int:
        """The most tokens with which a segment may share a pass with other segments."""
        if self.gpu_tier is None:
            return PRODUCT_TOKENS - 1
        return int(self.gpu_tier.shares)

    def _run_passes(
        self, program: GpuProgram, passes: Sequence[GpuPass], incoming: StepValues | None
    ) -> Values:
        self._kept = kept = KeptRoutes(trims=self._trims)
        given = None if incoming is None else on_host(incoming)
        logits: dict[int, Values] = {}
        hidden = np.zeros(
            (sum(len(each.rows) for each in passes), self._own.config.hidden_size), "<f4"
        )
        for each in passes:
            own = None if given is None else given[each.rows]
            segments = tuple(each.segments.values())
            ends = np.cumsum([self._num_rows(segment) for segment in segments])
            values = self._run(program, segments, own)
            logits |= zip(each.segments, np.split(values, ends[:-1]), strict=True)
            kept.add(each.segments, program)
            if self._own.keeps_hidden:
                hidden[each.rows] = self.hidden
        self.hidden = hidden
        return np.concatenate([logits[row] for row in sorted(logits)])

    def _num_rows(self, segment: Segment) -> int:
        return len(segment.outputs if self._own.gives_outputs else segment.ids)

    def _run(
        self,
        program: GpuProgram,
        segments: tuple[Segment, ...],
        incoming: StepValues | None,
        *,
        largest: bool = False,
        reads: bool = True,
        runs_ahead: bool = False,
        prompt: PromptProgram | None = None,
    ) -> Values:
        """Runs one pass; experts without a slot are handled by the current miss mode."""
        num_tokens = sum(len(segment.ids) for segment in segments)
        misses, predicts = self._tier_steps.begin(segments, num_tokens)
        sequences = [_inputs(segment) for segment in segments]
        if prompt is not None:
            given = None if incoming is None else on_host(incoming)
            values = prompt.run(sequences[0], given, misses=misses)
        else:
            values = program.run(
                sequences, incoming, largest=largest, reads=reads, runs_ahead=runs_ahead,
                misses=misses, predicts=predicts,
            )  # fmt: skip
            # A step's duration decides about the miss mode. The next one may have begun already.
            if self.gpu_tier is not None and largest:
                program.largest()
            elif self.gpu_tier is not None and not reads:
                self.device.synchronise()
        if self._own.keeps_hidden:
            self.hidden = program.read_hidden(num_tokens) if prompt is None else prompt.hidden
        routes = partial(self._slotted_routes, program, segments)
        self._tier_steps.end(
            num_tokens, routes, is_decode=num_tokens == len(segments),
            was_started_ahead=prompt is None and program.was_started_ahead,
        )  # fmt: skip
        return values

    def _slotted_routes(self, program: GpuProgram, segments: tuple[Segment, ...]) -> list[IntArray]:
        slotted = self._memory.expert_weights.slotted
        assert slotted is not None
        layers = self._own.weights.layers
        with_experts = [i for i in self._own.layers if layers[i].experts is not None]
        rows = step_rows(segments, program.routes, trims=self._trims)
        of_layer = dict(zip(with_experts, rows, strict=True))
        return [of_layer[number] for number in slotted.numbers]

    def prepare(self) -> None:
        """Records the step, fills the slots, and compiles the kernels of a token and a prompt."""
        super().prepare()
        if self.gpu_tier is not None:
            self.gpu_tier.prepare()
        self._memory.features.prepare(self.device, self._kernels)

    def _kernels(self) -> set[Kernel]:
        """Returns the kernels that decode a token and, without slots, those of a prompt's batch."""
        program = self._program(self._settings.num_parallel)
        steps = [program.step(1, 1, 0)]
        if self.gpu_tier is None:
            steps += [program.step(self._settings.batch_size, 1, 0)]
        return program.step_replay.kernels(steps)

    @property
    def routes(self) -> list[IntArray]:
        return super().routes if self._kept is None else self._kept.routes

    @property
    def router_logits(self) -> list[Values]:
        return super().router_logits if self._kept is None else self._kept.router_logits

    def largest(self) -> int:
        assert self._latest is not None
        return self._latest.largest()

    @property
    def is_ahead(self) -> bool:
        return self._latest is not None and self._latest.is_ahead

    def calls_of_token(self, position: int) -> list[Call]:
        program = self._program(self._settings.num_outputs)
        return program.step_replay.calls(program.step(1, 1, position))

    def drop_graphs(self) -> None:
        """Forgets captured graphs: the next step of every size launches each kernel singly."""
        for program in self._programs.values():
            program.drop_graphs()

    @property
    def held_bytes(self) -> int:
        """Bytes of the weights loaded so far, the KV cache and the recurrent layers' states."""
        return self._memory.weights.num_bytes + self._memory.kv_bytes

    def _discard_next(self) -> None:
        if self._latest is not None:
            self._latest.discard_next()

    def _grow_cache(self, num_pages: int) -> None:
        growth = self._memory.growth
        if growth is not None and growth.lacks(num_pages):
            self.drop_graphs()
            growth.grow(num_pages)

    def prepare_change(self, num_pages: int = 0) -> None:
        """Drops a step begun early, restores the recurrent states, and grows the KV cache."""
        self._discard_next()
        self._grow_cache(num_pages)

    def _record(self, max_outputs: int) -> GpuProgram:
        own, recorder = self._own, self._memory.recorder(max_outputs)

        def incoming() -> RecordedTensor:
            x = recorder.incoming(own.config.hidden_size)
            return recorder.select_outputs(x) if own.takes_outputs else x

        program = recorder.finish(*own.record(recorder, incoming))
        if max_outputs == own.settings.num_outputs:
            self._prompts.prepare(program)
        return program

    def close(self) -> None:
        with suppress(DeviceError):
            self.device.synchronise()  # a step that has begun may still read experts in RAM
        self._programs.clear()
        if self.gpu_tier is not None:
            self.gpu_tier.close()
        self._memory.expert_weights.close()


def _inputs(segment: Segment) -> SequenceInputs:
    """Converts a segment to a program's inputs."""
    ids, position, outputs, pages, state = segment[:5]
    return SequenceInputs(ids, position, outputs, pages, state or 0, segment.states_after)


def gpu_scratch_bytes(config: ModelConfig, weights: ModelWeights, settings: EngineSettings) -> int:
    """Returns the bytes of buffers with all layers on a GPU, counted by recording the step."""
    device = CountingDevice()
    layers = range(config.num_layers)
    own = PartModel(config, weights, settings, layers, keeps_hidden=config.has_head)
    part = GpuPart(device, own)
    part.prepare()
    buffers = device.num_bytes - part.held_bytes
    return buffers + library_bytes(config, settings)
