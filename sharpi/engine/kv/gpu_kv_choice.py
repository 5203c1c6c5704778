"""Decides if f16 keys and values of a context leave a GPU's layers the slots that they need."""

from msgspec import Struct

from sharpi.config import KvTypes, RunConfig
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import kv_bytes
from sharpi.tiers.facts import read_facts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.request import TierRequest, tier_request
from sharpi.units import format_bytes


class GpuRoom(Struct, frozen=True, order=True):
    """The room that GPUs have beside a whole context's keys and values of some type.

    `slots`: the fewest experts that have room there, of the layers with slots there; they are
    counted up to `recommended`, and both are 0 where no layer has slots there.
    """

    num_layers: int
    slots: int
    recommended: int


def gpu_layers_of(
    config: RunConfig, file: GgufFile, model: ModelConfig, hardware: HardwareInfo, positions: int
) -> frozenset[int]:
    """Returns the layers that GPUs compute with f16 keys and values of a whole context."""
    request = _request(config, hardware, positions)
    if not request.vram:
        return frozenset()
    plan = plan_tiers(read_facts(file, model), hardware, request)
    return frozenset(i for place in plan.gpus for i in place.layers)


def why_not_f16(
    config: RunConfig, file: GgufFile, model: ModelConfig, hardware: HardwareInfo, positions: int
) -> str | None:
    """Returns why f16 takes too much of VRAM where q8_0 takes less; None if it does not."""
    request = _request(config, hardware, positions)
    if not request.vram:
        return None
    f16, q8 = (
        _room(plan_tiers(read_facts(file, model, types), hardware, request))
        for types in (KvTypes("f16", "f16"), KvTypes("q8_0", "q8_0"))
    )
    if q8 <= f16:
        return None
    needed = format_bytes(kv_bytes(model.attention, positions))
    vram, of_layers = format_bytes(request.vram), f"of {model.num_layers} layers"
    beside = f"f16 would take {needed}, and beside it {vram} of VRAM would have room for"
    if q8.num_layers > f16.num_layers:
        return f"{beside} {f16.num_layers} {of_layers}, not for {q8.num_layers}"
    wanted = f"of the {q8.recommended} recommended experts of a layer"
    return f"{beside} {f16.slots} {wanted}, not for {q8.slots}"


def _request(config: RunConfig, hardware: HardwareInfo, positions: int) -> TierRequest:
    """Returns a request for whole contexts, of which no part is given to slots at first."""
    return tier_request(
        config,
        hardware,
        context_size=positions,
        batch_size=min(config.batch_size, positions),
        rounding="int8",
        num_threads=1,
    )


def _room(plan: TierPlan) -> GpuRoom:
    on_gpu = {i for place in plan.gpus for i in place.layers}
    counts = [
        (min(layer.vram_slots, layer.recommended_slots), layer.recommended_slots)
        for layer in plan.layers
        if layer.index in on_gpu and layer.num_experts
    ]
    return GpuRoom(len(on_gpu), *min(counts, default=(0, 0)))
