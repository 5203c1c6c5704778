"""PartRecorder: records the step of a model's layers for a GPU."""

from sharpi.device.device import Device
from sharpi.engine.backends.gpu.part_memory import PartLayers, PartMemory
from sharpi.model.config import ModelConfig
from sharpi.model.transformer import Transformer
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cuda.recorded import RecordedTensor
from sharpi.ops.cuda.recorder.recorder import GpuRecorder
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.step_inputs import StepInputs, StepSizes
from sharpi.ops.cuda.replay.step_outputs import StepOutputs
from sharpi.tiers.settings import EngineSettings


class PartRecorder:
    """Records the layers `own` of a model; each recorded step has buffers of its own."""

    def __init__(
        self,
        device: Device,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        own: PartLayers,
        memory: PartMemory,
    ) -> None:
        self._device, self._config, self._weights = device, config, weights
        self._settings, self._own, self._memory = settings, own, memory

    def record(self, max_outputs: int) -> GpuProgram:
        """Records a step with at most `max_outputs` outputs."""
        own, recorder = self._own, self._recorder(self._limits(max_outputs))
        model: Transformer[RecordedTensor] = Transformer(
            self._config, self._weights, recorder, trims_last_layer=not own.keeps_router_logits,
            keeps_hidden=own.keeps_hidden,
        )  # fmt: skip
        x = model.embed() if own.embeds else recorder.incoming(self._config.hidden_size)
        if own.layers:
            x = model.layers(x, own.layers)
        elif own.takes_outputs:
            x = recorder.select_outputs(x)
        logits = model.logits(x) if own.has_output else x
        return recorder.finish(logits, model.hidden)

    def _limits(self, max_outputs: int) -> ProgramLimits:
        return ProgramLimits(
            max_tokens=self._settings.batch_size,
            max_outputs=max_outputs,
            max_positions=self._settings.pages_per_sequence * PAGE_POSITIONS,
            precision=self._settings.rounding,
        )

    def _recorder(self, limits: ProgramLimits) -> GpuRecorder:
        device, c, memory = self._device, self._config, self._memory
        num_ids = (
            c.num_layers * c.num_experts_per_token * max(limits.max_tokens, limits.max_outputs)
        )
        return GpuRecorder(
            Recording(device, limits, memory.weights, memory.routed, self._settings.disabled),
            memory.expert_weights,
            memory.cache,
            memory.states,
            StepInputs(device, self._sizes(limits), memory.frames),
            StepOutputs(device, num_ids),
            keeps_router_logits=self._own.keeps_router_logits,
        )

    def _sizes(self, limits: ProgramLimits) -> StepSizes:
        s = self._settings
        return StepSizes(
            tokens=limits.max_tokens,
            outputs=limits.max_outputs,
            sequences=s.num_parallel,
            num_pages=s.pages_per_sequence,
            hidden_size=self._config.hidden_size,
        )
