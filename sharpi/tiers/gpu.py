"""Plans a GPU's memory: first dense weights and KV cache of layers, then slots for experts."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.tiers.expert_memory import (
    NO_STAGING,
    NO_STASH,
    GpuStaging,
    KvGrowth,
    SlotDemand,
    StashPlan,
    gpu_staging,
    gpu_staging_bytes,
    grant,
    max_stash_bytes,
    prompt_stash,
    slot_demands,
    slots_bytes,
)
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import GpuPlace, Purpose, Tier, TierBudget
from sharpi.tiers.settings import PlanRequest
from sharpi.units import plural


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
    model: ModelFacts, request: PlanRequest, on_gpu: Sequence[int], free_bytes: int
) -> GpuExperts:
    """Plans the memory for experts, of the bytes beside dense weights and KV cache."""
    layers = {
        i: model.layers[i]
        for i in on_gpu
        if model.layers[i].num_experts and not request.keeps_off_gpu(i)
    }
    demands = slot_demands(layers, request.config.moe_slots)
    slots = grant(demands, free_bytes)
    if all(count == layers[i].num_experts for i, count in slots.items()):
        return GpuExperts(slots, slots_bytes(demands, slots))
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
    num_bytes = slots_bytes(demands, slots)
    if not num_bytes:
        return GpuExperts(slots)
    return GpuExperts(slots, num_bytes, staging, staging_bytes, learned, stash, growth)


def _growth(
    request: PlanRequest,
    layers: Mapping[int, LayerFacts],
    demands: Mapping[int, SlotDemand],
    last_slots: Mapping[int, int],
    on_gpu: Sequence[int],
    free_bytes: int,
) -> KvGrowth | None:
    """Plans a KV cache that begins small, to have more slots at the start; None for a fixed one."""
    whole, first = request.sizes.gpu_kv, request.sizes.gpu_kv_first
    if whole is None or first is None or places_full_layers(request):
        return None
    # To grow, each layer's part is moved, and is then in memory twice.
    last_bytes = free_bytes - max(whole[i] for i in on_gpu)
    if last_bytes < 0:
        return None
    # A layer that will lack slots for some experts lacks one from the start.
    most = {
        i: SlotDemand(demand.slot_bytes, min(demand.most, layers[i].num_experts - 1))
        if last_slots[i] < layers[i].num_experts
        else demand
        for i, demand in demands.items()
    }
    slots = grant(most, free_bytes + sum(whole[i] - first[i] for i in on_gpu))
    if slots_bytes(most, slots) <= slots_bytes(most, last_slots):
        return None
    granted = {i: SlotDemand(most[i].slot_bytes, count) for i, count in slots.items()}
    return KvGrowth(request.sizes.kv_first_pages, last_bytes, granted)


def places_full_layers(request: PlanRequest) -> bool:
    """Returns True if layers, not slots, were asked for: they have all their experts."""
    return request.config.gpu_layers is not None and request.config.moe_slots is None


RESERVE_BYTES = 512 << 20  # driver context, cuBLAS, graph pools, allocator granularity


LEARNED_REASON = "what the policy learns about which experts come next"


class GpuPlan(Struct, frozen=True):
    """The part of a plan that is about GPUs: their layers, slots and memory."""

    layers: frozenset[int]  # indices of the layers on GPUs
    slots: dict[int, int]  # by layer, the number of expert slots on the GPU
    has_output: bool
    tier_budget: TierBudget
    notes: tuple[str, ...] = ()
    places: tuple[GpuPlace, ...] = ()  # for the GPUs that have layers, in order

    @property
    def embeds(self) -> bool:
        """True if the embedding is on a GPU."""
        return any(place.embeds for place in self.places)

    def holds_all_experts(self, index: int, layer: LayerFacts) -> bool:
        """Returns True if the layer has experts and all of them have a slot on the GPU."""
        return layer.num_experts > 0 and self.slots.get(index) == layer.num_experts


def plan_gpu(model: ModelFacts, request: PlanRequest) -> GpuPlan:
    """Plans one GPU.

    The output matrix is placed first, then the layers, from the last one on. Experts have slots
    only if no layer was left out for lack of memory: a layer on the GPU saves more time than slots
    of the same size. If the user requested a number of layers, each is placed with all its experts.
    """
    wanted = wanted_layers(model, request)
    fitting = _fitting_layers(model, request, wanted)
    if not fitting:
        return no_layers(request, wanted)
    has_slots = len(fitting) == wanted or places_full_layers(request)
    plan = plan_layers(model, request, fitting, has_slots=has_slots)
    plan = replace(plan, notes=(*left_out_notes(wanted, len(fitting)), *plan.notes))
    return _with_embedding(model, plan)


def no_layers(request: PlanRequest, wanted: int) -> GpuPlan:
    """Returns the plan where none of the wanted layers fits on a GPU."""
    budget = TierBudget(Tier.VRAM, request.vram)
    return GpuPlan(frozenset(), {}, False, budget, left_out_notes(wanted, 0))


def _with_embedding(model: ModelFacts, plan: GpuPlan) -> GpuPlan:
    """Adds the embedding if the GPU then holds all, as slots for experts would save more time."""
    budget, size = plan.tier_budget, model.embedding_bytes
    holds_all = len(plan.layers) == len(model.layers) and all(
        plan.holds_all_experts(i, layer) or not layer.num_experts
        for i, layer in enumerate(model.layers)
    )
    if not (holds_all and 0 < size <= budget.left) or model.has_head:
        return plan
    budget.take(Purpose.DENSE_WEIGHTS, size, "embedding: one row is looked up for a token")
    (place,) = plan.places
    return replace(plan, places=(replace(place, num_bytes=budget.taken, embeds=True),))


def extra_bytes(model: ModelFacts, request: PlanRequest) -> list[int]:
    """Returns each layer's bytes on a GPU beside its dense weights."""
    has_experts = places_full_layers(request)
    return [
        kv + has_experts * (not request.keeps_off_gpu(i)) * layer.num_experts * layer.slot_bytes
        for i, (layer, kv) in enumerate(zip(model.layers, request.gpu_kv, strict=False))
    ]


def plan_layers(
    model: ModelFacts,
    request: PlanRequest,
    fitting: Sequence[int],
    *,
    has_slots: bool,
    has_output: bool = True,
    gpu: int = 0,
) -> GpuPlan:
    """Plans a GPU's memory for the layers `fitting`; `gpu` is its index in the request.

    Experts have slots only with `has_slots`. With `has_output`, the output matrix is included.
    """
    tier_budget = TierBudget(Tier.VRAM, request.vram)
    tier_budget.take(Purpose.RESERVE, RESERVE_BYTES, "driver, libraries and graphs of the GPU")
    tier_budget.take(Purpose.SCRATCH, request.gpu_scratch, scratch_reason(request))
    dense_weights = sum(model.layers[i].dense_weights_bytes for i in fitting)
    output = (model.output_bytes, " and the output") if has_output else (0, "")
    reason = f"read for every token: {plural(len(fitting), 'layer')}{output[1]}"
    tier_budget.take(Purpose.DENSE_WEIGHTS, dense_weights + output[0], reason)
    left = tier_budget.left - sum(request.gpu_kv[i] for i in fitting)
    experts = gpu_experts(model, request, fitting if has_slots else [], left)
    growth = experts.growth
    kv = request.kv_at_start(grows=growth is not None)
    tier_budget.take(
        Purpose.KV,
        sum(kv[i] for i in fitting),
        _kv_reason(request, growth, sum(model.layers[i].has_window for i in fitting)),
    )
    _take_experts(tier_budget, experts)
    notes = () if growth is None else (growth.note(request.settings.num_pages),)
    place = GpuPlace(
        gpu, fitting[0], fitting[-1] + 1, tier_budget.budget, tier_budget.taken,
        experts.staging, experts.stash, growth,
    )  # fmt: skip
    return GpuPlan(frozenset(fitting), experts.slots, has_output, tier_budget, notes, (place,))


def _kv_reason(request: PlanRequest, growth: KvGrowth | None, num_with_windows: int) -> str:
    settings = request.settings
    positions, more = settings.context_size, ""
    if growth is not None:
        positions = growth.first_pages * PAGE_POSITIONS
        more = f"; up to {settings.num_pages * PAGE_POSITIONS} in place of slots"
    if num_with_windows and settings.window_pages:
        most = settings.window_pages * PAGE_POSITIONS
        more += f"; {most} at most in {num_with_windows} with windows"
    return f"{positions} positions beside their layers{more}"


def _take_experts(tier_budget: TierBudget, experts: GpuExperts) -> None:
    tier_budget.take(Purpose.STAGING, experts.staging_bytes, experts.staging.reason)
    tier_budget.take(Purpose.LEARNED, experts.learned_bytes, LEARNED_REASON)
    tier_budget.take(Purpose.STASH, experts.stash.gpu_bytes, experts.stash.reason)
    reason = "what dense weights and KV cache leave, shared by the layers"
    tier_budget.take(Purpose.SLOTS, experts.slots_bytes, reason)


def scratch_reason(request: PlanRequest) -> str:
    """Returns the text in the plan that explains the size of the buffers."""
    return f"buffers for steps of {request.settings.batch_size} tokens"


def wanted_layers(model: ModelFacts, request: PlanRequest) -> int:
    """Returns how many of the last layers should be on GPUs if their memory suffices."""
    if not request.vram:
        return 0
    most = len(model.own_layers)
    return most if request.config.gpu_layers is None else min(most, request.config.gpu_layers)


def _fitting_layers(model: ModelFacts, request: PlanRequest, wanted: int) -> list[int]:
    """Returns the indices of the last of the wanted layers that fit on the GPU."""
    budget = request.vram - RESERVE_BYTES - request.gpu_scratch - model.output_bytes
    fitting: list[int] = []
    own, extra = model.own_layers, extra_bytes(model, request)
    for index in reversed(own[len(own) - wanted :]):
        budget -= model.layers[index].dense_weights_bytes + extra[index]
        if budget < 0:
            break
        fitting.insert(0, index)
    while fitting and not _has_its_keys(model, fitting):
        fitting.pop(0)
    return fitting


def _has_its_keys(model: ModelFacts, layers: list[int]) -> bool:
    """Returns True if none of these layers reads the keys and values of an earlier layer."""
    sources = (model.layers[i].kv_layer for i in layers)
    return all(source is None or source >= layers[0] for source in sources)


def left_out_notes(wanted: int, on_gpu: int) -> tuple[str, ...]:
    """Returns a note if fewer layers are on GPUs than `wanted`, otherwise an empty tuple."""
    if on_gpu == wanted:
        return ()
    return (f"{wanted - on_gpu} of {wanted} layers stay on the CPU: they do not fit in VRAM",)
