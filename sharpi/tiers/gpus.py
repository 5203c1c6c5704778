"""Plans the memory of all GPUs of one machine: which layers and buffers each of them holds."""

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec.structs import replace

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.gpu import (
    RESERVE_BYTES,
    GpuPlan,
    extra_bytes,
    left_out_notes,
    plan_gpu,
    plan_layers,
    wanted_layers,
)
from sharpi.tiers.gpu_division import GpuCapacity, divide_gpus
from sharpi.tiers.gpu_experts import places_full_layers
from sharpi.tiers.plan import PlanLine, Tier
from sharpi.tiers.settings import PlanRequest
from sharpi.tiers.tier_budget import TierBudget

_READ_RATE = 400e9  # bytes per second of a desktop GPU, if nothing was measured


def plan_gpus(model: ModelFacts, request: PlanRequest, kv: list[int], scratch: int) -> GpuPlan:
    """Plans all GPUs of the request; the parameters are those of `plan_gpu`.

    If the model fits on the first GPU, only this one is used, unless all GPUs are requested.
    """
    if len(request.vrams) < 2:
        return plan_gpu(model, request, kv, scratch)
    if not request.config.gpus:
        alone = replace(request, vrams=request.vrams[:1])
        plan = plan_gpu(model, alone, kv, scratch)
        if holds_model(model, alone, plan):
            return plan
    return _plan_together(model, request, kv, scratch)


def holds_model(model: ModelFacts, request: PlanRequest, plan: GpuPlan) -> bool:
    """Returns True if all layers and experts that the request wants on a GPU are on it."""
    return len(plan.layers) == wanted_layers(model, request) and all(
        plan.holds_all_experts(i, layer) or not layer.num_experts or request.keeps_off_gpu(i)
        for i, layer in enumerate(model.layers)
        if i in plan.layers
    )


def _plan_together(model: ModelFacts, request: PlanRequest, kv: list[int], scratch: int) -> GpuPlan:
    scratch = scratch if request.sizes.gpu_scratch is None else request.sizes.gpu_scratch
    wanted = wanted_layers(model, request)
    division = None
    if wanted:
        capacities = list(_capacities(request, scratch))
        division = divide_gpus(model, request, extra_bytes(model, request, kv), capacities)
    if division is None:
        budget = TierBudget(Tier.VRAM, request.vram)
        return GpuPlan(frozenset(), {}, False, budget, left_out_notes(wanted, 0))
    end_of_all = model.own_layers.stop
    num_on_gpus = end_of_all - division[0][0]
    has_slots = num_on_gpus == wanted or places_full_layers(request)
    plans = [
        plan_layers(
            model, replace(request, vrams=(request.vrams[gpu],)), kv, scratch,
            list(range(first, end)),
            has_slots=has_slots, has_output=end == end_of_all, gpu=gpu,
        )
        for gpu, (first, end) in enumerate(division)
        if first < end
    ]  # fmt: skip
    return _joined(plans, request, left_out_notes(wanted, num_on_gpus))


def _capacities(request: PlanRequest, scratch: int) -> Iterable[GpuCapacity]:
    rates = request.vram_rates or (_READ_RATE,) * len(request.vrams)
    for vram, rate in zip(request.vrams, rates, strict=True):
        yield GpuCapacity(vram - RESERVE_BYTES - scratch, rate)


def _joined(plans: Sequence[GpuPlan], request: PlanRequest, notes: tuple[str, ...]) -> GpuPlan:
    """Returns one plan that merges the plans of all GPUs."""
    budget = TierBudget(Tier.VRAM, request.vram)
    for plan in plans:
        for line in plan.tier_budget.lines:
            budget.take(line.purpose, line.num_bytes, _reason(plan, line))
    places = tuple(chain.from_iterable(plan.places for plan in plans))
    return GpuPlan(
        layers=frozenset(chain.from_iterable(plan.layers for plan in plans)),
        slots={i: count for plan in plans for i, count in plan.slots.items()},
        has_output=True,
        tier_budget=budget,
        notes=(*notes, *(note for plan in plans for note in plan.notes)),
        places=places,
    )


def _reason(plan: GpuPlan, line: PlanLine) -> str:
    return f"GPU {plan.places[0].gpu}: {line.reason}"
