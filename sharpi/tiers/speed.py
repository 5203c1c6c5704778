"""Estimates decode speed as a range, from bandwidths and hit rates.

The upper bound assumes that VRAM, RAM, disk and bus are read at the same time at their measured
rates, and that few experts are used. The lower bound assumes that they are read one after the other
below these rates, and that all experts are used alike. The speed at a short context is between the
two, unless other programs use the machine.

Hit rates are the share of a token's experts that are resident, by the number of slots. They were
measured with the default policy on 8,000 tokens of GPT-OSS-20B, or follow from a model's profile.
Routes of other models may repeat less or more, so there are also a lowest and a highest rate.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from sharpi.hardware.info import Rates
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import LayerPlan, Speed, Tier
from sharpi.tiers.settings import PlanRequest

# Pairs of the share of a layer's experts that have slots, and the hit rate.
CURVE = (
    (0.0, 0.0),
    (0.031, 0.174),
    (0.062, 0.313),
    (0.094, 0.426),
    (0.125, 0.515),
    (0.188, 0.640),
    (0.250, 0.728),
    (0.375, 0.847),
    (0.500, 0.917),
    (0.625, 0.958),
    (0.750, 0.981),
    (0.875, 0.994),
    (1.0, 1.0),
)
_REPEATS = 4  # the ratio of misses: random routes with the same skew to the recorded routes


class HitRates(Struct, frozen=True):
    """Three hit rates, 0 to 1: if all experts are used alike, expected, if few are used."""

    low: float
    likely: float
    high: float


def hit_rates(num_slots: int, num_experts: int, shares: Sequence[float] = ()) -> HitRates:
    """Returns the hit rates of a layer with `num_slots` slots.

    `shares`: the share of the layer's uses that its most used expert has, that its two most used
    experts have, and so on; empty without a profile.
    """
    share = num_slots / num_experts
    if num_slots >= num_experts or not num_slots:
        return HitRates(share, share, share)
    likely = max(share, shares[num_slots - 1]) if shares else curve(share)
    best = 1 - (1 - max(likely, curve(share))) / _REPEATS
    return HitRates((share + likely) / 2 if shares else share, likely, best)


def curve(share: float) -> float:
    """Returns the hit rate on the recorded routes if a `share` of the experts has slots.

    It interpolates between measured points.
    """
    at = max(1, bisect_left(CURVE, (share, 0.0)))
    (left, low), (right, high) = CURVE[at - 1], CURVE[min(at, len(CURVE) - 1)]
    return low + (high - low) * (share - left) / (right - left) if right > left else high


def cumulative_shares(uses: Sequence[int]) -> tuple[float, ...]:
    """Returns the argument `shares` of `hit_rates`, from the uses of each expert of a layer.

    Empty if all uses are 0.
    """
    total = sum(uses)
    return tuple(count / total for count in accumulate(sorted(uses, reverse=True))) if total else ()


VRAM_READ, RAM_READ, DISK_READ, BUS = "VRAM read", "RAM read", "disk read", "bus"
# Bytes per second of a desktop GPU, two channels of DDR4, an SSD and 16 lanes of PCIe 3.
_USUAL = {VRAM_READ: 400e9, RAM_READ: 30e9, DISK_READ: 1.5e9, BUS: 12e9}
_MODES = {BUS: "cross the bus", RAM_READ: "are computed by the CPU"}
# The least fraction of a measured rate that is reached: kernels may be bound by computation.
_LEAST_PARTS = {VRAM_READ: 1 / 3, RAM_READ: 1 / 3, DISK_READ: 2 / 3, BUS: 2 / 3}
_LAYER_SECONDS = (4e-6, 60e-6)  # the least and the most seconds of a layer's barriers or launches
_MISS_SECONDS = 0.4e-3  # the longest time before an expert's read from disk begins
_MARGIN = 1.25  # a rate may exceed its measurement by this factor at another moment

Case = Literal["low", "likely", "high"]


def expected_speed(
    model: ModelFacts,
    request: PlanRequest,
    layers: Iterable[LayerPlan],
    output_on_gpu: bool,
    rates: Rates,
) -> Speed:
    """Returns the estimated decode speed at a short context."""
    layers, speeds = tuple(layers), _speeds(rates)
    first = {(VRAM_READ if output_on_gpu else RAM_READ): float(model.output_bytes)}

    def total(case: Case) -> dict[str, float]:
        reads = [first, *_all_reads(model, request, layers, speeds, case)]
        return {source: sum(read.get(source, 0.0) for read in reads) for source in _USUAL}

    likely = {source: count for source, count in total("likely").items() if count}
    fewest, most = (len(layers) * each for each in _LAYER_SECONDS)
    fastest = max(count / speeds[source] for source, count in total("high").items()) / _MARGIN
    slowest = sum(n / speeds[source] / _LEAST_PARTS[source] for source, n in total("low").items())
    slowest += _MISS_SECONDS * sum(_most_misses(layer, model) for layer in layers)
    found = list(_in_fastest_tier(layers, model))
    return Speed(
        tokens_per_second=1 / max(fastest, fewest, 1e-9),
        least_tokens_per_second=1 / max(slowest + most, 1e-9),
        bound=max(likely, key=lambda source: likely[source] / speeds[source], default=RAM_READ),
        bytes_per_token={source: round(count) for source, count in likely.items()},
        hit_rate=_mean([rates.likely for rates in found]),
        least_hit_rate=_mean([rates.low for rates in found]),
        best_hit_rate=_mean([rates.high for rates in found]),
        assumptions=tuple(_assumptions(likely, rates, layers, model, request, speeds)),
    )


def _all_reads(
    model: ModelFacts,
    request: PlanRequest,
    layers: Iterable[LayerPlan],
    speeds: Mapping[str, float],
    case: Case,
) -> Iterator[dict[str, float]]:
    for layer in layers:
        mode = _miss_mode(layer, request, speeds)
        yield from _layer_reads(layer, model, mode, case)


def _layer_reads(
    layer: LayerPlan, model: ModelFacts, mode: str, case: Case
) -> Iterator[dict[str, float]]:
    """Yields dicts with the bytes of a layer that one token reads, by source.

    The sources are VRAM, RAM, disk and bus; `mode` is the source of experts that are not on the
    GPU. An expert from disk also counts as a read from RAM.
    """
    yield {(VRAM_READ if layer.dense_weights is Tier.VRAM else RAM_READ): layer.dense_weights_bytes}
    if not layer.num_experts:
        return
    chosen = model.num_experts_per_token * (layer.expert_bytes or 0)
    on_gpu = chosen * getattr(_rates_of(layer, model, layer.vram_slots), case)
    yield {VRAM_READ: on_gpu}
    yield {mode: chosen - on_gpu}
    yield {DISK_READ: chosen * (1 - getattr(_rates_of(layer, model, layer.num_resident), case))}


def _most_misses(layer: LayerPlan, model: ModelFacts) -> float:
    """Returns how many experts of a layer a token reads from disk if all are used alike."""
    if not layer.num_experts:
        return 0.0
    return model.num_experts_per_token * (1 - _rates_of(layer, model, layer.num_resident).low)


def _rates_of(layer: LayerPlan, model: ModelFacts, num_slots: int) -> HitRates:
    shares = model.use_shares[layer.index] if model.use_shares else ()
    return hit_rates(num_slots, layer.num_experts, shares)


def _in_fastest_tier(layers: tuple[LayerPlan, ...], model: ModelFacts) -> Iterator[HitRates]:
    """Yields the hit rates of each layer with experts: in VRAM if there is a GPU, else in RAM."""
    has_gpu = any(layer.dense_weights is Tier.VRAM for layer in layers)
    for layer in layers:
        if layer.num_experts:
            yield _rates_of(layer, model, layer.vram_slots if has_gpu else layer.num_resident)


def _mean(values: list[float]) -> float:
    """Returns the mean of the values; 1 if there are none, as for a model without experts."""
    return sum(values) / len(values) if values else 1.0


def _miss_mode(layer: LayerPlan, request: PlanRequest, speeds: Mapping[str, float]) -> str:
    """Returns the source of the experts that a layer's slots on the GPU miss: bus or RAM.

    The GPU cannot read slots in RAM, so that the CPU computes experts from disk.
    """
    is_reached = layer.dense_weights is Tier.VRAM and layer.experts is not Tier.DISK
    miss = request.config.experts.miss
    if not is_reached or request.keeps_off_gpu(layer.index) or miss == "cpu":
        return RAM_READ
    return BUS if miss != "auto" or speeds[BUS] > speeds[RAM_READ] else RAM_READ


def _assumed_modes(
    layers: Iterable[LayerPlan], request: PlanRequest, speeds: Mapping[str, float]
) -> Iterator[str]:
    """Yields a sentence for each miss mode that the estimate assumes."""
    modes = {
        _miss_mode(layer, request, speeds)
        for layer in layers
        if layer.dense_weights is Tier.VRAM and layer.vram_slots < layer.num_experts
    }
    yield from (f"experts that are not on the GPU {_MODES[mode]}" for mode in sorted(modes))


def _speeds(rates: Rates) -> dict[str, float]:
    measured = _measured(rates)
    return {source: measured[source] or usual for source, usual in _USUAL.items()}


def _measured(rates: Rates) -> dict[str, float | None]:
    return {
        VRAM_READ: rates.vram_read,
        RAM_READ: rates.ram_read,
        DISK_READ: rates.disk_read,
        BUS: rates.bus,
    }


def _assumptions(
    counts: Iterable[str],
    rates: Rates,
    layers: tuple[LayerPlan, ...],
    model: ModelFacts,
    request: PlanRequest,
    speeds: Mapping[str, float],
) -> Iterator[str]:
    measured = _measured(rates)
    for source in counts:
        if measured[source] is None:
            yield f"{source} of {_USUAL[source] / 1e9:g} GB/s: not measured"
    if any(_is_divided(layer) for layer in layers):
        yield (
            "hit rates follow from the profile's uses"
            if model.use_shares
            else "hit rates are the default policy's on routes of GPT-OSS-20B; --moe-profile FILE"
            " takes the model's own"
        )
    yield from _assumed_modes(layers, request, speeds)


def _is_divided(layer: LayerPlan) -> bool:
    """Returns True if a layer's experts are in more than one tier."""
    counts = (layer.vram_slots, layer.num_resident)
    return any(0 < count < layer.num_experts for count in counts)
