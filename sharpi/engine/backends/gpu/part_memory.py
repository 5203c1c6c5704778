"""PartMemory: what all steps of a part share on a GPU: weights, KV cache, states and slots."""

from collections.abc import Iterable

from sharpi.device.device import Device
from sharpi.engine.backends.expert_tier import ExpertTier
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.engine.backends.gpu.tier import GpuTier
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.backends.recorded_part import PartModel, program_limits
from sharpi.engine.kv.window_pages import gpu_windows_of
from sharpi.errors import DeviceError
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights, HostComputeSettings
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.features import GpuFeatures
from sharpi.ops.cuda.gpu_weights import GpuStates, GpuWeights
from sharpi.ops.cuda.kv_cache import SPARE_FRAMES, GpuKvCache, WindowFrames, layer_bytes
from sharpi.ops.cuda.recorded import PassCounts, RoutedRows
from sharpi.ops.cuda.recorder.attention_calls import FUSED_BYTES
from sharpi.ops.cuda.recorder.recorder import GpuRecorder
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.step_inputs import StepInputs, StepSizes
from sharpi.ops.cuda.replay.step_outputs import StepOutputs
from sharpi.ops.recurrent import state_bytes
from sharpi.tiers.expert_memory import KvGrowth
from sharpi.tiers.settings import EngineSettings


class GpuGrowth:
    """Grows the KV cache to at most `num_pages`; appends to `notes` how many slots are left."""

    def __init__(
        self,
        growth: KvGrowth,
        cache: GpuKvCache,
        layers: SlottedLayers,
        num_pages: int,
        notes: list[str],
    ) -> None:
        self._growth, self._cache, self._layers = growth, cache, layers
        self._num_pages, self._notes = num_pages, notes

    def lacks(self, num_pages: int) -> bool:
        return num_pages > self._cache.num_pages

    def grow(self, num_pages: int) -> None:
        """Grows the KV cache to `num_pages`, or to twice its size if that is more.

        Call it between steps, after forgetting captured graphs, which hold memory. Raises
        DeviceError, with the KV cache as it was, if there is no room even without slots.
        """
        cache, layers = self._cache, self._layers
        target = min(self._num_pages, max(num_pages, 2 * cache.num_pages))
        before = self._num_slots
        slots = self._growth.slots_beside(cache.bytes_of(self._num_pages) - cache.bytes_of(target))
        slots = {number: slots[number] for number in layers.numbers}
        layers.shrink(slots)
        while not self._has_grown(target, may_fail=any(slots.values())):
            slots = {number: count // 2 for number, count in slots.items()}
            layers.shrink(slots)
        self._notes.append(
            f"the KV cache has grown to {target * PAGE_POSITIONS:,} positions: {self._num_slots} of"
            f" {before} slots per layer are left"
        )

    def _has_grown(self, num_pages: int, *, may_fail: bool) -> bool:
        try:
            self._cache.grow(num_pages)
        except DeviceError:
            if not may_fail:
                raise
            return False
        return True

    @property
    def _num_slots(self) -> int:
        return max(self._layers.num_slots(number) for number in self._layers.numbers)


def pages_of(segments: Iterable[Segment]) -> int:
    """Returns the least size of a KV cache, in pages, that includes all pages of these segments."""
    return 1 + max((int(each.pages.max()) for each in segments if each.pages.size), default=-1)


class PartMemory:
    """A part's weights, KV cache, recurrent states and expert slots in the memory of a GPU.

    `gpu_tier` decides about the slots; `counts` are counts of prompts, for reports.
    """

    def __init__(
        self,
        device: Device,
        own: PartModel,
        slots: GpuSlots | None,
        tier: ExpertTier | None,
        counts: PassCounts,
    ) -> None:
        config, settings = own.config, own.settings
        self._device, self._own = device, own
        self.weights = GpuWeights(device)
        self.features = GpuFeatures(settings.disabled)
        source = None if tier is None else tier.feed
        host = HostComputeSettings(settings.num_batch_threads, settings.instruction_set, source)
        wanted = None if slots is None else slots.settings
        self.expert_weights = GpuExpertWeights(device, self.weights, wanted, host)
        slotted = self.expert_weights.slotted
        growth = None if slots is None else slots.growth
        num_pages = settings.num_pages if growth is None else growth.first_pages
        self.frames = _window_frames(own)
        self.cache = GpuKvCache(device, own.attention, num_pages, settings.kv_types, self.frames)
        self.gpu_tier: GpuTier | None = None
        self.growth: GpuGrowth | None = None
        if slots is not None and slotted is not None:
            self.gpu_tier = GpuTier(slots, slotted, counts, tier)
            if growth is not None:
                notes = self.gpu_tier.notes
                self.growth = GpuGrowth(growth, self.cache, slotted, settings.num_pages, notes)
        factor = settings.capacity_factor
        has_backup = bool(factor) or runs_ahead(own)
        self.states = GpuStates(device, own.states, settings.num_states, has_backup=has_backup)
        self.routed: RoutedRows | None = None  # None without a limit of a prompt's routed rows
        if factor is not None and config.is_moe:
            self.routed = RoutedRows(device, factor, self.states, counts)

    def recorder(self, max_outputs: int) -> GpuRecorder:
        """Returns a recorder of the part's step with at most `max_outputs` outputs."""
        device, config, s = self._device, self._own.config, self._own.settings
        limits = program_limits(s, s.batch_size, max_outputs)
        sizes = StepSizes(
            limits.max_tokens, max_outputs, s.num_parallel, s.pages_per_sequence, config.hidden_size
        )
        rows = max(limits.max_tokens, max_outputs)
        return GpuRecorder(
            Recording(device, limits, self.weights, self.routed, self.features),
            self.expert_weights,
            self.cache,
            self.states,
            StepInputs(device, sizes, self.frames),
            StepOutputs(device, config.num_layers * config.num_experts_per_token * rows),
            keeps_router_logits=self._own.keeps_router_logits,
        )

    @property
    def kv_bytes(self) -> int:
        return self.cache.num_bytes + self.states.num_bytes


def runs_ahead(own: PartModel) -> bool:
    """Returns True if a GPU embeds tokens and chooses them, so that it can go on by itself."""
    return own.embeds and own.has_output


def _window_frames(own: PartModel) -> WindowFrames | None:
    """Returns the frames of sliding-window layers; None if all layers have all pages."""
    layers = frozenset(layer for layer in gpu_windows_of(own.config) if layer in own.layers)
    s = own.settings
    if not (layers and s.window_pages):
        return None
    return WindowFrames(layers, s.window, s.window_pages + SPARE_FRAMES, s.batch_size)


def gpu_kv_bytes(
    config: ModelConfig, settings: EngineSettings, layers: range | None = None
) -> tuple[int, ...]:
    """Returns the bytes of each layer's KV cache and states on a GPU, 0 outside of `layers`."""
    counts = [settings.num_states * state_bytes(mixer.state_shapes) for mixer in config.mixers]
    windows = gpu_windows_of(config) if settings.window_pages else {}
    in_windows = settings.window_pages + SPARE_FRAMES
    for shape in config.attention:
        if shape.layer == config.num_layers:  # an MTP head, which runs on the CPU
            continue
        pages = in_windows if shape.layer in windows else settings.num_pages
        counts[shape.layer] += layer_bytes(shape, pages, settings.kv_types)
    return tuple(n if layers is None or i in layers else 0 for i, n in enumerate(counts))


def library_bytes(config: ModelConfig, settings: EngineSettings) -> int:
    """Returns the most bytes that fused attention allocates in one call."""
    counts = [0]
    for shape in config.attention:
        dims = shape.key_dim + shape.value_dim
        kv = 2 * settings.context_size * shape.num_kv_heads * dims
        tokens = 2 * settings.batch_size * shape.num_heads * dims
        counts.append(2 * min(kv, FUSED_BYTES) + tokens)
    return max(counts)
