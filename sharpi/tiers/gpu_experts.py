"""Divides a GPU's memory for experts: slots and, unless all fit, staging buffers and a stash.

The stash holds the hidden states of prompts that are computed layer by layer.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.kv_growth import KvGrowth
from sharpi.tiers.prompt_stash import NO_STASH, StashPlan, max_stash_bytes, prompt_stash
from sharpi.tiers.settings import PlanRequest
from sharpi.tiers.slot_grants import SlotDemand, grant
from sharpi.tiers.slot_sizing import most_slots
from sharpi.tiers.staging import NO_STAGING, GpuStaging, gpu_staging, gpu_staging_bytes

Layers = Mapping[int, LayerFacts]


class GpuExperts(Struct, frozen=True):
    """The part of a GPU's memory that is for experts."""

    slots: dict[int, int] = field(default_factory=dict)  # slots by layer
    slots_bytes: int = 0
    staging: GpuStaging = NO_STAGING
    staging_bytes: int = 0
    learned_bytes: int = 0
    stash: StashPlan = NO_STASH
    growth: KvGrowth | None = None  # None unless the KV cache begins small


def gpu_experts(
    model: ModelFacts, request: PlanRequest, on_gpu: list[int], free_bytes: int
) -> GpuExperts:
    """Plans the memory for experts of the layers `on_gpu`.

    `free_bytes`: the bytes that remain besides dense weights and the full KV cache.
    """
    layers = {
        i: model.layers[i]
        for i in on_gpu
        if model.layers[i].num_experts and not request.keeps_off_gpu(i)
    }
    demands = {
        i: SlotDemand(layer.slot_bytes, most_slots(layer, request.config.moe_slots))
        for i, layer in layers.items()
    }
    slots = grant(demands, free_bytes)
    if all(count == layers[i].num_experts for i, count in slots.items()):
        return GpuExperts(slots, _slots_bytes(layers, slots))
    staging, stash = NO_STAGING, NO_STASH
    if request.fills_from_ram:
        staging = gpu_staging(model, layers.values(), free_bytes)
    staging_bytes, stash_bytes = gpu_staging_bytes(staging, layers.values()), 0
    if staging.num_streamed:
        stash = prompt_stash(model, request, free_bytes)
        stash_bytes = max_stash_bytes(model, request, free_bytes)
    learned = request.sizes.gpu_learned_bytes * len(layers) if request.fills_from_ram else 0
    free_bytes -= staging_bytes + stash_bytes + learned
    slots = grant(demands, free_bytes)
    growth = _growth(request, layers, demands, slots, on_gpu, free_bytes)
    if growth is not None:
        slots = {i: demand.most for i, demand in growth.demands.items()}
    num_bytes = _slots_bytes(layers, slots)
    if not num_bytes:
        return GpuExperts(slots)
    return GpuExperts(slots, num_bytes, staging, staging_bytes, learned, stash, growth)


def _growth(
    request: PlanRequest,
    layers: Layers,
    demands: Mapping[int, SlotDemand],
    last_slots: Mapping[int, int],
    on_gpu: list[int],
    free_bytes: int,
) -> KvGrowth | None:
    """Plans a KV cache that begins small, if that allows more slots and the cache can grow later.

    To grow, each layer's part is moved, and is then in memory twice. A layer that lacks slots for
    some experts once the cache has its full size also lacks at least one slot at the start. Returns
    None for a cache of fixed size.
    """
    whole, first = request.sizes.gpu_kv, request.sizes.gpu_kv_first
    if whole is None or first is None or places_full_layers(request):
        return None
    last_bytes = free_bytes - max(whole[i] for i in on_gpu)
    if last_bytes < 0:
        return None
    most = {
        i: SlotDemand(demand.slot_bytes, min(demand.most, layers[i].num_experts - 1))
        if last_slots[i] < layers[i].num_experts
        else demand
        for i, demand in demands.items()
    }
    slots = grant(most, free_bytes + sum(whole[i] - first[i] for i in on_gpu))
    if _slots_bytes(layers, slots) <= _slots_bytes(layers, last_slots):
        return None
    granted = {i: SlotDemand(most[i].slot_bytes, count) for i, count in slots.items()}
    return KvGrowth(request.sizes.kv_first_pages, last_bytes, granted)


def _slots_bytes(layers: Layers, slots: Mapping[int, int]) -> int:
    return sum(layers[i].slot_bytes * count for i, count in slots.items())


def places_full_layers(request: PlanRequest) -> bool:
    """Returns True if the user requested a number of layers but no number of slots.

    Then each layer on the GPU has all of its experts there.
    """
    return request.config.gpu_layers is not None and request.config.moe_slots is None


def all_experts_bytes(model: ModelFacts, request: PlanRequest, index: int) -> int:
    """Returns the bytes of all experts of a layer, or 0 if they are kept off the GPU."""
    layer = model.layers[index]
    return 0 if request.keeps_off_gpu(index) else layer.num_experts * layer.slot_bytes
