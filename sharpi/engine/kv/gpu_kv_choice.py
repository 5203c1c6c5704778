"""Decides whether f16 keys and values leave GPUs enough room for layers and expert slots."""

from msgspec import Struct

from sharpi.config import KvType, KvTypes, RunConfig
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import kv_bytes
from sharpi.tiers.facts import ModelFacts, read_facts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.scratch import scratch_bytes
from sharpi.tiers.settings import EngineSettings, KnownSizes, usable_vrams
from sharpi.units import format_bytes

# What attention on a GPU takes beside the KV cache (sharpi/ops/cuda/recorder/attention_calls.py):
# partial results of a split context, and one layer's keys and values, gathered in order.
_PARTS_BYTES, _GATHERED_BYTES = 32 << 20, 256 << 20


class GpuFit(Struct, frozen=True, order=True):
    """The layers and slots for which GPUs have room beside a whole context's keys and values.

    `num_layers` counts the layers on GPUs. `slots` is the fewest expert slots of any layer with
    slots, but at most `recommended`. Both numbers of slots are 0 if no layer has slots.
    """

    num_layers: int
    slots: int
    recommended: int


class KvOnGpu(Struct, frozen=True):
    """The layers that GPUs compute, and the reason why f16 takes too much VRAM.

    `why_not_f16` is None if it does not.
    """

    layers: frozenset[int] = frozenset()
    why_not_f16: str | None = None


def choose_on_gpu(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    hardware: HardwareInfo,
    positions: int,
    window_pages: int = 0,
) -> KvOnGpu:
    """Returns the layers that GPUs compute with f16 keys and values of a whole context.

    `why_not_f16` is set if q8_0 leaves room for more. Without a GPU there are no layers.
    `window_pages` is as for `kv_bytes`.
    """
    vrams = usable_vrams(config, hardware)
    if not vrams:
        return KvOnGpu()
    settings = _settings(config, positions, window_pages)

    def planned(kind: KvType) -> TierPlan:
        facts = read_facts(file, model, KvTypes(kind, kind))
        sizes = KnownSizes(gpu_scratch=gpu_buffers(facts, model, settings))
        return plan_tiers(facts, hardware, config, settings, sizes)

    f16, q8 = planned("f16"), planned("q8_0")
    needed = kv_bytes(model.attention, positions, window_pages=window_pages)
    return KvOnGpu(_on_gpu(f16), _why_not(f16, q8, model.num_layers, needed, sum(vrams)))


def _why_not(
    f16_plan: TierPlan, q8_plan: TierPlan, num_layers: int, f16_bytes: int, vram: int
) -> str | None:
    """Returns the reason against f16 if q8_0 leaves room for more layers or slots, else None."""
    f16, q8 = _gpu_fit(f16_plan), _gpu_fit(q8_plan)
    if q8 <= f16:
        return None
    needed, of_layers = format_bytes(f16_bytes), f"of {num_layers} layers"
    beside = f"f16 would take {needed}, and beside it {format_bytes(vram)} of VRAM would have room"
    if q8.num_layers > f16.num_layers:
        return f"{beside} for {f16.num_layers} {of_layers}, not for {q8.num_layers}"
    wanted = f"of the {q8.recommended} recommended experts of a layer"
    return f"{beside} for {f16.slots} {wanted}, not for {q8.slots}"


def _settings(config: RunConfig, positions: int, window_pages: int) -> EngineSettings:
    """Returns settings for a KV cache of `positions` positions, before the others are decided."""
    return EngineSettings(
        context_size=positions,
        batch_size=min(config.batch_size, positions),
        rounding="int8",
        instruction_set="",
        num_threads=1,
        num_batch_threads=1,
        window_pages=window_pages,
        num_parallel=config.num_parallel,
    )


def gpu_buffers(facts: ModelFacts, model: ModelConfig, settings: EngineSettings) -> int:
    """Estimates the bytes of a GPU's buffers, slightly too high; the final plan counts them."""
    positions = settings.context_size
    largest = max((kv_bytes([shape], positions) for shape in model.attention), default=0)
    buffers = scratch_bytes(
        facts.widths,
        batch_size=settings.batch_size,
        num_positions=positions,
        rounding=settings.rounding,
        num_threads=settings.num_threads,
    )
    return buffers + _PARTS_BYTES + 2 * min(largest, _GATHERED_BYTES)


def _on_gpu(plan: TierPlan) -> frozenset[int]:
    return frozenset(i for place in plan.gpus for i in place.layers)


def _gpu_fit(plan: TierPlan) -> GpuFit:
    on_gpu = _on_gpu(plan)
    counts = [
        (min(layer.vram_slots, layer.recommended_slots), layer.recommended_slots)
        for layer in plan.layers
        if layer.index in on_gpu and layer.num_experts
    ]
    return GpuFit(len(on_gpu), *min(counts, default=(0, 0)))
