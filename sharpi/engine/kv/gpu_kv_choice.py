"""Decides whether f16 keys and values leave GPUs enough room for layers and expert slots."""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.config import KvTypes, RunConfig
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import kv_bytes
from sharpi.tiers.facts import ModelFacts, read_facts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.request import TierRequest, tier_request
from sharpi.tiers.scratch import scratch_bytes
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
    if not _request(config, hardware, positions).vram:
        return KvOnGpu()
    f16_facts, q8_facts = (read_facts(file, model, KvTypes(kind, kind)) for kind in ("f16", "q8_0"))
    request = gpu_request(config, f16_facts, model, hardware, positions, window_pages)
    f16, q8 = (plan_tiers(facts, hardware, request) for facts in (f16_facts, q8_facts))
    needed = kv_bytes(model.attention, positions, window_pages=window_pages)
    reason = _why_not(f16, q8, model.num_layers, needed, request.vram or 0)
    return KvOnGpu(_on_gpu(f16), reason)


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


def _request(config: RunConfig, hardware: HardwareInfo, positions: int) -> TierRequest:
    return tier_request(
        config,
        hardware,
        context_size=positions,
        batch_size=min(config.batch_size, positions),
        rounding="int8",
        num_threads=1,
    )


def gpu_request(
    config: RunConfig,
    facts: ModelFacts,
    model: ModelConfig,
    hardware: HardwareInfo,
    positions: int,
    window_pages: int = 0,
) -> TierRequest:
    """Returns the planner's input for a KV cache of `positions` positions.

    A GPU's buffers, which the final plan counts, are estimated here, slightly too high.
    """
    request = replace(_request(config, hardware, positions), window_pages=window_pages)
    largest = max((kv_bytes([shape], positions) for shape in model.attention), default=0)
    buffers = scratch_bytes(
        facts.widths,
        batch_size=request.batch_size,
        num_positions=positions,
        rounding=request.rounding,
        num_threads=request.num_threads,
    )
    attention = _PARTS_BYTES + 2 * min(largest, _GATHERED_BYTES)
    return replace(request, gpu_scratch=buffers + attention)


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
