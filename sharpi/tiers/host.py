"""Plans RAM: the model if it fits, otherwise dense weights, and slots for experts on disk."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.tiers.expert_memory import (
    grant,
    num_for_checks,
    num_staging,
    slot_demands,
    slots_bytes,
    staging_bytes,
    staging_reason,
)
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.gpu import LEARNED_REASON, GpuPlan, scratch_reason
from sharpi.tiers.plan import Purpose, Tier, TierBudget
from sharpi.tiers.settings import PlanRequest

_LEARNED_SHARE = 8  # learned maps use at most an eighth of the memory for slots


class HostPlan(Struct, frozen=True):
    """The part of a plan that is about RAM and the CPU."""

    tier: Tier  # the tier of the experts that the GPU does not hold
    slots: dict[int, int]  # slots by layer index
    num_staging: int
    tier_budget: TierBudget
    uses_small_maps: bool = False  # there is too little memory for the maps of the usual policy


def plan_host(model: ModelFacts, request: PlanRequest, gpu: GpuPlan, budget: int) -> HostPlan:
    """Plans the use of `budget` bytes of RAM, given the plan of the GPUs."""
    tier_budget = TierBudget(Tier.RAM, budget)
    _take_dense_weights(model, gpu, tier_budget)
    in_ram = [num_bytes for i, num_bytes in enumerate(request.kv) if i not in gpu.layers]
    tier_budget.take(Purpose.KV, sum(in_ram), _kv_reason(model, request, gpu))
    tier_budget.take(Purpose.SCRATCH, request.scratch, scratch_reason(request))
    for place in gpu.places:
        stash = place.stash
        tier_budget.take(Purpose.STASH, stash.host_bytes, f"{stash.reason}: page-locked")
    layers = {
        i: layer
        for i, layer in enumerate(model.layers)
        if layer.num_experts and not gpu.holds_all_experts(i, layer)
    }
    size = sum(layer.experts_bytes for layer in layers.values())
    least = staging_bytes(model, layers.values())
    if size <= max(tier_budget.left, least) and not _asks_for_slots(request, gpu):
        tier_budget.take(Purpose.EXPERTS, size, _experts_reason(request, gpu, layers))
        return HostPlan(Tier.RAM, {}, 0, tier_budget)
    return _with_slots(model, request, gpu, layers, tier_budget)


def _kv_reason(model: ModelFacts, request: PlanRequest, gpu: GpuPlan) -> str:
    positions = _kv_positions(model, request)
    if gpu.layers.isdisjoint(model.read_by_head):
        return positions
    return f"{positions}; copies of the GPU's for the MTP head"


def _kv_positions(model: ModelFacts, request: PlanRequest) -> str:
    size, total = request.settings.context_size, request.settings.num_pages * PAGE_POSITIONS
    positions = f"{size} positions, whole pages"
    if total > size + PAGE_POSITIONS:
        positions = f"{total} positions, shared by all sequences"
    if any(layer.state_bytes for layer in model.layers):
        return f"{positions}; states of recurrent layers, with snapshots"
    return positions


def _experts_reason(request: PlanRequest, gpu: GpuPlan, layers: Iterable[int]) -> str:
    if all(request.keeps_off_gpu(index) for index in gpu.layers.intersection(layers)):
        return "all fit: read where the file is mapped, no copy"
    return "all fit: those of layers with slots are page-locked, so that the GPU reads them too"


def _take_dense_weights(model: ModelFacts, gpu: GpuPlan, tier_budget: TierBudget) -> None:
    on_cpu = set(range(len(model.layers))) - gpu.layers
    dense_weights = sum(model.layers[i].dense_weights_bytes for i in on_cpu)
    output = 0 if gpu.has_output and not model.has_head else model.output_bytes
    tier_budget.take(
        Purpose.DENSE_WEIGHTS,
        dense_weights + output,
        "read for every token: attention, norms, routers, shared experts, dense layers, output",
    )
    if not gpu.embeds:
        reason = "embedding: one row is looked up for a token"
        tier_budget.take(Purpose.DENSE_WEIGHTS, model.embedding_bytes, reason)


def _asks_for_slots(request: PlanRequest, gpu: GpuPlan) -> bool:
    """Returns True if slots in RAM were asked for, which are used even if all experts fit."""
    return request.config.moe_slots is not None and not any(gpu.slots.values())


def _learned_bytes(
    model: ModelFacts, request: PlanRequest, gpu: GpuPlan, free_bytes: int
) -> tuple[int, bool]:
    """Returns the bytes of learned maps, and True if the usual ones are too large."""
    if gpu.layers:
        return request.sizes.gpu_learned_bytes * sum(map(bool, gpu.slots.values())), False
    usual, least = (n * len(model.layers) for n in (request.sizes.learned_bytes,
                                                    request.sizes.least_learned_bytes))  # fmt: skip
    is_tight = least < usual and usual * _LEARNED_SHARE > free_bytes
    return least if is_tight else usual, is_tight


def _with_slots(
    model: ModelFacts,
    request: PlanRequest,
    gpu: GpuPlan,
    layers: dict[int, LayerFacts],
    tier_budget: TierBudget,
) -> HostPlan:
    if not layers:
        return HostPlan(Tier.RAM, {}, 0, tier_budget)
    further = 0
    if request.settings.max_drafts and not gpu.layers:
        free_bytes = tier_budget.left - staging_bytes(model, layers.values())
        further = num_for_checks(model, layers.values(), free_bytes)
    num_bytes = staging_bytes(model, layers.values(), further)
    tier_budget.take(Purpose.STAGING, num_bytes, staging_reason(model, further))
    learned, is_tight = _learned_bytes(model, request, gpu, tier_budget.left)
    tier_budget.take(Purpose.LEARNED, learned, LEARNED_REASON)
    limit = request.config.moe_slots if _asks_for_slots(request, gpu) else None
    elsewhere = {
        i: replace(layer, num_experts=layer.num_experts - gpu.slots.get(i, 0))
        for i, layer in layers.items()
    }
    demands = slot_demands(elsewhere, limit)
    slots = grant(demands, tier_budget.left)
    reason = "experts read from disk stay here, shared by the layers"
    tier_budget.take(Purpose.SLOTS, slots_bytes(demands, slots), reason)
    return HostPlan(Tier.DISK, slots, num_staging(model) + further, tier_budget, is_tight)
