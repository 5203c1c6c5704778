"""Plans the memory of all GPUs of one machine, and divides the layers among them.

The division is by memory and speed, or by given shares. Each GPU has consecutive layers, and the
GPUs compute one after the other; the last one also has the output. So the time of a token is the
sum of their times, plus the time for experts that are not in VRAM.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate, chain

from msgspec import Struct
from msgspec.structs import replace

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.gpu import (
    RESERVE_BYTES,
    GpuPlan,
    extra_bytes,
    left_out_notes,
    no_layers,
    places_full_layers,
    plan_gpu,
    plan_layers,
    wanted_layers,
)
from sharpi.tiers.layer_division import first_layers
from sharpi.tiers.plan import Tier, TierBudget
from sharpi.tiers.settings import PlanRequest
from sharpi.tiers.speed import curve

Division = tuple[tuple[int, int], ...]  # for each GPU, its first layer and the end of its layers
_READ_RATE = 400e9  # bytes per second of a desktop GPU, if nothing was measured
_BUS_RATE = 12e9  # bytes per second of 16 lanes of PCIe 3
# Added for each full GPU, so that of equally fast divisions the most even one is chosen.
_FULL_SECONDS = 1e-6
_NO_ROOM = float("inf")


class _Sums(Struct, frozen=True):
    """Cumulative sums over layers: entry i is the sum over all layers before i."""

    extra: list[int]  # bytes that must be in VRAM
    dense: list[int]  # bytes of dense weights, which every token reads
    experts: list[int]  # bytes of slots for all experts, in layers that may have slots
    chosen: list[int]  # bytes of the experts that one token uses

    def of(self, values: list[int], first: int, end: int) -> int:
        return values[end] - values[first]


def divide_gpus(model: ModelFacts, request: PlanRequest) -> Division | None:
    """Returns each GPU's range of layers, possibly empty; None if no layer fits.

    As many of the last layers as fit are divided, by `--tensor-split` if that is given. If
    possible, every GPU has at least one layer.
    """
    own, wanted, count = model.own_layers, wanted_layers(model, request), len(request.vrams)
    starts = [i for i in first_layers(model) if own.stop - wanted <= i < own.stop]
    seconds = _cost(model, request)
    if request.config.tensor_split:
        return _by_shares(starts, own.stop, request.config.tensor_split, count, seconds)
    return _fastest(starts, own.stop, count, seconds, leaves_none=True) or _fastest(
        starts, own.stop, count, seconds, leaves_none=False
    )


def _cost(model: ModelFacts, request: PlanRequest) -> Callable[[int, int, int], float]:
    """Returns `seconds(gpu, first, end)` of a token on a GPU with these layers, if they fit."""
    sums, end_of_all = _sums(model, request), model.own_layers.stop
    rates = request.vram_rates or (_READ_RATE,) * len(request.vrams)
    capacities = [vram - RESERVE_BYTES - request.gpu_scratch for vram in request.vrams]

    def seconds(gpu: int, first: int, end: int) -> float:
        if first == end:
            return 0.0
        capacity, output = capacities[gpu], model.output_bytes if end == end_of_all else 0
        dense = output + sums.of(sums.dense, first, end)
        left = capacity - output - sums.of(sums.extra, first, end)
        if left < 0:
            return _NO_ROOM
        wanted, chosen = (sums.of(each, first, end) for each in (sums.experts, sums.chosen))
        hits = curve(min(1.0, left / wanted)) if wanted else 1.0
        full = 1 - max(0, left - wanted) / max(1, capacity)
        read = (dense + hits * chosen) / rates[gpu] + (1 - hits) * chosen / _BUS_RATE
        return read + _FULL_SECONDS * full * full

    return cache(seconds)


def _sums(model: ModelFacts, request: PlanRequest) -> _Sums:
    extra, full = extra_bytes(model, request), places_full_layers(request)

    def before(values: Iterable[int]) -> list[int]:
        return list(accumulate(values, initial=0))

    missable = [
        replace(layer, num_experts=0) if full or request.keeps_off_gpu(i) else layer
        for i, layer in enumerate(model.layers)
    ]
    used = model.num_experts_per_token
    return _Sums(
        before(e.dense_weights_bytes + own for e, own in zip(model.layers, extra, strict=True)),
        before(e.dense_weights_bytes for e in model.layers),
        before(e.num_experts * e.slot_bytes for e in missable),
        before(bool(e.num_experts) * used * (e.expert_bytes or 0) for e in missable),
    )


def _fastest(
    starts: Sequence[int],
    num_layers: int,
    count: int,
    seconds: Callable[[int, int, int], float],
    *,
    leaves_none: bool,
) -> Division | None:
    """Returns the fastest division of the most layers that fit, with or without idle GPUs."""
    ends = [*starts, num_layers]

    @cache
    def best(gpu: int, first: int) -> tuple[float, Division]:
        if gpu == count:
            return (0.0 if first == num_layers else _NO_ROOM), ()
        least = first + 1 if leaves_none else first
        found: tuple[float, Division] = (_NO_ROOM, ())
        for end in ends[bisect_left(ends, least) :]:
            own = seconds(gpu, first, end)
            if own == _NO_ROOM:
                break  # there is no room for more layers either
            rest, later = best(gpu + 1, end)
            found = min(found, (own + rest, ((first, end), *later)))
        return found

    divisions = (best(0, first) for first in starts)
    return next((division for cost, division in divisions if cost < _NO_ROOM), None)


def _by_shares(
    starts: Sequence[int],
    num_layers: int,
    shares: Sequence[float],
    count: int,
    seconds: Callable[[int, int, int], float],
) -> Division | None:
    """Returns the division by `shares` of as many layers as fit; None if none fits."""
    for first in starts:
        division = _shared(starts, first, num_layers, [*shares, *[0.0] * count][:count])
        if all(seconds(gpu, *own) < _NO_ROOM for gpu, own in enumerate(division)):
            return division
    return None


def _shared(
    starts: Sequence[int], first: int, num_layers: int, shares: Sequence[float]
) -> Division:
    """Returns llama.cpp's division by shares from `first` on; layers are moved to `starts`."""
    total, ends = sum(shares), [*starts, num_layers]
    parts = [each / total for each in accumulate(shares)]
    owners = [
        min(bisect_right(parts, (i - first) / (num_layers - first)), len(shares) - 1)
        for i in range(first, num_layers)
    ]
    bounds = [first + bisect_left(owners, gpu) for gpu in range(len(shares))]
    bounds = [ends[bisect_left(ends, each)] for each in bounds]
    return tuple(zip(bounds, (*bounds[1:], num_layers), strict=True))


def plan_gpus(model: ModelFacts, request: PlanRequest) -> GpuPlan:
    """Plans several GPUs, or the first alone if the model fits there and none are named."""
    if not request.config.gpus:
        alone = replace(request, vrams=request.vrams[:1])
        plan = plan_gpu(model, alone)
        if holds_model(model, alone, plan):
            return plan
    return _plan_together(model, request)


def holds_model(model: ModelFacts, request: PlanRequest, plan: GpuPlan) -> bool:
    """Returns True if all layers and experts that the request wants on a GPU are on it."""
    return len(plan.layers) == wanted_layers(model, request) and all(
        plan.holds_all_experts(i, layer) or not layer.num_experts or request.keeps_off_gpu(i)
        for i, layer in enumerate(model.layers)
        if i in plan.layers
    )


def _plan_together(model: ModelFacts, request: PlanRequest) -> GpuPlan:
    wanted = wanted_layers(model, request)
    division = divide_gpus(model, request) if wanted else None
    if division is None:
        return no_layers(request, wanted)
    end_of_all = model.own_layers.stop
    num_on_gpus = end_of_all - division[0][0]
    has_slots = num_on_gpus == wanted or places_full_layers(request)
    plans = [
        plan_layers(
            model, replace(request, vrams=(request.vrams[gpu],)), range(first, end),
            has_slots=has_slots, has_output=end == end_of_all, gpu=gpu,
        )
        for gpu, (first, end) in enumerate(division)
        if first < end
    ]  # fmt: skip
    return _joined(plans, request, left_out_notes(wanted, num_on_gpus))


def _joined(plans: Sequence[GpuPlan], request: PlanRequest, notes: tuple[str, ...]) -> GpuPlan:
    """Returns one plan that merges the plans of all GPUs."""
    budget = TierBudget(Tier.VRAM, request.vram)
    for plan in plans:
        for line in plan.tier_budget.lines:
            reason = f"GPU {plan.places[0].gpu}: {line.reason}"
            budget.take(line.purpose, line.num_bytes, reason)
    places = tuple(chain.from_iterable(plan.places for plan in plans))
    return GpuPlan(
        layers=frozenset(chain.from_iterable(plan.layers for plan in plans)),
        slots={i: count for plan in plans for i, count in plan.slots.items()},
        has_output=True,
        tier_budget=budget,
        notes=(*notes, *(note for plan in plans for note in plan.notes)),
        places=places,
    )
