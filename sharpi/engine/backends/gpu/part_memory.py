"""PartMemory: what all steps of a part share on a GPU: weights, KV cache, states and slots."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from sharpi.device.device import Device
from sharpi.engine.backends.expert_tier import ExpertTier
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.engine.backends.gpu.tier import GpuTier
from sharpi.engine.backends.model_part import Segment
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
from sharpi.ops.recurrent import num_states, state_bytes
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
        DeviceError if there is no room even without slots, as when other programs have taken the
        GPU's memory. The KV cache keeps its contents in that case.
        """
        cache = self._cache
        target = min(self._num_pages, max(num_pages, 2 * cache.num_pages))
        freed = cache.bytes_of(self._num_pages) - cache.bytes_of(target)
        before = self._num_slots
        self._grow(target, self._growth.slots_beside(freed))
        self._notes.append(
            f"the KV cache has grown to {target * PAGE_POSITIONS:,} positions: {self._num_slots} of"
            f" {before} slots per layer are left"
        )

    @property
    def _num_slots(self) -> int:
        return max(self._layers.num_slots(number) for number in self._layers.numbers)

    def _grow(self, num_pages: int, slots: Mapping[int, int]) -> None:
        """Grows the KV cache; if it does not fit, halves the number of slots until it does."""
        slots = {number: slots[number] for number in self._layers.numbers}
        self._layers.shrink(slots)
        while True:
            try:
                return self._cache.grow(num_pages)
            except DeviceError:
                if not any(slots.values()):
                    raise
            slots = {number: count // 2 for number, count in slots.items()}
            self._layers.shrink(slots)


def pages_of(segments: Iterable[Segment]) -> int:
    """Returns the least size of a KV cache, in pages, that includes all pages of these segments."""
    return 1 + max((int(each.pages.max()) for each in segments if each.pages.size), default=-1)


class PartLayers(Struct, frozen=True):
    """The layers that a GPU runs, and whether it also embeds tokens and computes logits."""

    layers: range
    embeds: bool
    has_output: bool
    keeps_router_logits: bool
    keeps_hidden: bool

    @property
    def is_whole(self) -> bool:
        """True if the GPU both embeds tokens and computes logits.

        It can then embed a token that it has chosen itself, before the host knows that token.
        """
        return self.embeds and self.has_output

    @property
    def takes_outputs(self) -> bool:
        """True if there are no layers, and the input has one row per output, not per token."""
        return not self.layers and not self.keeps_hidden


class PartMemory:
    """A part's weights, KV cache, recurrent states and expert slots in the memory of a GPU.

    `gpu_tier` decides about the slots. `counts` are counts of prompts, for reports. The other
    arguments are GpuPart's.
    """

    def __init__(
        self,
        device: Device,
        config: ModelConfig,
        settings: EngineSettings,
        own: PartLayers,
        slots: GpuSlots | None,
        tier: ExpertTier | None,
        counts: PassCounts,
        *,
        runs_ahead: bool,
    ) -> None:
        self.weights = GpuWeights(device)
        self.features = GpuFeatures(settings.disabled)
        source = None if tier is None else tier.feed
        host = HostComputeSettings(settings.num_batch_threads, settings.instruction_set, source)
        wanted = None if slots is None else slots.settings
        self.expert_weights = GpuExpertWeights(device, self.weights, wanted, host)
        self.gpu_tier: GpuTier | None = None
        if slots is not None and self.expert_weights.slotted is not None:
            self.gpu_tier = GpuTier(slots, self.expert_weights.slotted, counts, tier)
        growth = None if slots is None else slots.growth
        num_pages = settings.num_pages if growth is None else growth.first_pages
        shapes = [shape for shape in config.attention if shape.layer in own.layers]
        self.frames = _window_frames(config, settings, own.layers)
        self.cache = GpuKvCache(device, shapes, num_pages, settings.kv_types, self.frames)
        self.growth: GpuGrowth | None = None
        if growth and self.expert_weights.slotted and self.gpu_tier:
            self.growth = GpuGrowth(
                growth,
                self.cache,
                self.expert_weights.slotted,
                settings.num_pages,
                self.gpu_tier.notes,
            )
        factor = settings.capacity_factor
        self.states = GpuStates(
            device,
            [shape for shape in config.states if shape.layer in own.layers],
            num_states(settings.num_parallel, settings.max_drafts),
            has_backup=bool(factor) or runs_ahead,
        )
        self.routed: RoutedRows | None = None  # None without a limit of a prompt's routed rows
        if factor is not None and config.is_moe:
            self.routed = RoutedRows(device, factor, self.states, counts)

    @property
    def kv_bytes(self) -> int:
        return self.cache.num_bytes + self.states.num_bytes


def _window_frames(
    config: ModelConfig, settings: EngineSettings, layers: range
) -> WindowFrames | None:
    """Returns the frames of sliding-window layers; None if all layers have all pages."""
    own = [layer for layer in gpu_windows_of(config) if layer in layers]
    if not (own and settings.window_pages):
        return None
    num_frames = settings.window_pages + SPARE_FRAMES
    return WindowFrames(frozenset(own), settings.window, num_frames, settings.batch_size)


def gpu_kv_bytes(
    config: ModelConfig, settings: EngineSettings, layers: range | None = None
) -> tuple[int, ...]:
    """Returns, for each layer, the bytes of its KV cache and recurrent states on a GPU.

    Layers outside of `layers` have 0 there, as other machines run them.
    """
    states = num_states(settings.num_parallel, settings.max_drafts)
    counts = [states * state_bytes(mixer.state_shapes) for mixer in config.mixers]
    windows = gpu_windows_of(config) if settings.window_pages else {}
    in_windows = settings.window_pages + SPARE_FRAMES
    for shape in config.attention:
        if shape.layer == config.num_layers:  # an MTP head, which runs on the CPU
            continue
        pages = in_windows if shape.layer in windows else settings.num_pages
        counts[shape.layer] += layer_bytes(shape, pages, settings.kv_types)
    return tuple(n if layers is None or i in layers else 0 for i, n in enumerate(counts))


def library_bytes(config: ModelConfig, settings: EngineSettings) -> int:
    """Returns the most bytes that a library kernel allocates in one call.

    Fused attention needs reordered keys, values and queries, and a result.
    """
    counts = [0]
    for shape in config.attention:
        dims = shape.key_dim + shape.value_dim
        kv = 2 * settings.context_size * shape.num_kv_heads * dims
        tokens = 2 * settings.batch_size * shape.num_heads * dims
        counts.append(2 * min(kv, FUSED_BYTES) + tokens)
    return max(counts)
