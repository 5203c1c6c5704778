"""Estimates decode speed and hit rates, from measured rates and what is known of a model's routes.

The estimate adds the times in which VRAM, RAM, disk and bus are read at their measured rates, and
those of a layer's barriers or launches. The range around it is a factor of two: the speed at a
short context is within it, unless other programs use the machine.

Hit rates are the share of a token's experts that are resident, by the number of slots. They follow
from what earlier runs of the model had, or else from a profile or 8,000 tokens of GPT-OSS-20B, on
which they were measured with the default policy.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

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


def hit_rate(
    num_slots: int,
    num_experts: int,
    shares: Sequence[float] = (),
    misses: Mapping[float, float] = {},
) -> float:
    """Returns the expected hit rate, 0 to 1, of a layer with `num_slots` slots.

    `shares`: the share of the layer's uses that its most used expert has, that its two most used
    experts have, and so on; empty without a profile. `misses`: the misses of earlier runs relative
    to those of `curve`, by the share of experts that had slots then.
    """
    share = num_slots / num_experts
    if num_slots >= num_experts or not num_slots:
        return share
    if misses:
        return _hits_between(share, misses)
    return max(share, shares[num_slots - 1]) if shares else curve(share)


def _hits_between(share: float, misses: Mapping[float, float]) -> float:
    """Returns the hit rate between those of the next earlier runs, along `curve`."""
    missed = [(curve(known), misses[known] * (1 - curve(known))) for known in sorted(misses)]
    at, (first, most) = curve(share), missed[0]
    if at <= first:
        return max(0.0, 1 - most / (1 - first) * (1 - at))
    for end, least in (*missed[1:], (1.0, 0.0)):
        least = min(most, least)
        if at <= end:
            break
        first, most = end, least
    return min(1.0, 1 - most + (most - least) * (at - first) / (end - first))


def curve(share: float) -> float:
    """Returns the hit rate on recorded routes with slots for a `share`, between measured points."""
    at = max(1, bisect_left(CURVE, (share, 0.0)))
    (left, low), (right, high) = CURVE[at - 1], CURVE[min(at, len(CURVE) - 1)]
    return low + (high - low) * (share - left) / (right - left) if right > left else high


def cumulative_shares(uses: Sequence[int]) -> tuple[float, ...]:
    """Returns `shares` of `hit_rate` from the uses of a layer's experts; empty if all are 0."""
    total = sum(uses)
    return tuple(count / total for count in accumulate(sorted(uses, reverse=True))) if total else ()


VRAM_READ, RAM_READ, DISK_READ, BUS = "VRAM read", "RAM read", "disk read", "bus"
# Bytes per second of a desktop GPU, two channels of DDR4, an SSD and 16 lanes of PCIe 3.
_USUAL = {VRAM_READ: 400e9, RAM_READ: 30e9, DISK_READ: 1.5e9, BUS: 12e9}
_MODES = {BUS: "cross the bus", RAM_READ: "are computed by the CPU"}
# The part of a measured rate that is usually reached where launches or transfers are many.
_PARTS = {VRAM_READ: 2 / 3, BUS: 5 / 6}
_TOKEN_SECONDS, _LAYER_SECONDS = 0.1e-3, 12e-6  # of a step, and of a layer's barriers or launches
_MOST, _LEAST = 1.25, 0.625  # the ends of the range, as multiples of the estimate
HIT_RANGE = 0.05  # hits are within this of the estimate, once the model's routes are known


def expected_speed(
    model: ModelFacts,
    request: PlanRequest,
    layers: Iterable[LayerPlan],
    output_on_gpu: bool,
    rates: Rates,
) -> Speed:
    """Returns the estimated decode speed at a short context."""
    layers = tuple(layers)
    reads = [{(VRAM_READ if output_on_gpu else RAM_READ): float(model.output_bytes)}]
    speeds = _speeds(rates, _misses_at_once(layers, model))
    for layer in layers:
        reads += _layer_reads(layer, model, _miss_mode(layer, request, speeds))
    sums = {source: sum(read.get(source, 0.0) for read in reads) for source in _USUAL}
    likely = {source: count for source, count in sums.items() if count}
    seconds = {source: count / speeds[source] for source, count in likely.items()}
    expected = 1 / (sum(seconds.values()) + _TOKEN_SECONDS + len(layers) * _LAYER_SECONDS)
    return Speed(
        tokens_per_second=_MOST * expected,
        least_tokens_per_second=_LEAST * expected,
        bound=max(seconds, key=lambda source: seconds[source], default=RAM_READ),
        bytes_per_token={source: round(count) for source, count in likely.items()},
        hit_rate=_mean(list(_in_fastest_tier(layers, model))),
        is_measured=all(_measured(rates)[source] for source in likely),
        is_hit_rate_known=bool(model.known_misses) or not any(map(_is_divided, layers)),
        assumptions=tuple(_assumptions(likely, rates, layers, model, request, speeds)),
    )


def _layer_reads(layer: LayerPlan, model: ModelFacts, mode: str) -> Iterator[dict[str, float]]:
    """Yields dicts with the bytes of a layer that one token reads, by source.

    The sources are VRAM, RAM, disk and bus; `mode` is the source of experts that are not on the
    GPU. An expert from disk also counts as a read from RAM.
    """
    yield {(VRAM_READ if layer.dense_weights is Tier.VRAM else RAM_READ): layer.dense_weights_bytes}
    if not layer.num_experts:
        return
    chosen = model.num_experts_per_token * (layer.expert_bytes or 0)
    on_gpu = chosen * _hit_rate(layer, model, layer.vram_slots)
    yield {VRAM_READ: on_gpu}
    yield {mode: chosen - on_gpu}
    yield {DISK_READ: chosen * (1 - _hit_rate(layer, model, layer.num_resident))}


def _misses_at_once(layers: Iterable[LayerPlan], model: ModelFacts) -> float:
    """Returns how many experts of a layer a token reads from disk at the same time, at least 1."""
    hits = [_hit_rate(each, model, each.num_resident) for each in layers if each.num_experts]
    return max(1.0, model.num_experts_per_token * (1 - _mean(hits)))


def _hit_rate(layer: LayerPlan, model: ModelFacts, num_slots: int) -> float:
    shares = model.use_shares[layer.index] if model.use_shares else ()
    return hit_rate(num_slots, layer.num_experts, shares, model.known_misses)


def _in_fastest_tier(layers: tuple[LayerPlan, ...], model: ModelFacts) -> Iterator[float]:
    """Yields the hit rate of each layer with experts: in VRAM if there is a GPU, else in RAM."""
    has_gpu = any(layer.dense_weights is Tier.VRAM for layer in layers)
    for layer in layers:
        if layer.num_experts:
            yield _hit_rate(layer, model, layer.vram_slots if has_gpu else layer.num_resident)


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


def _speeds(rates: Rates, at_once: float) -> dict[str, float]:
    """Returns bytes per second by source, for `at_once` experts that are read from disk."""
    measured = _measured(rates)
    speeds = {
        source: (measured[source] or usual) * _PARTS.get(source, 1.0)
        for source, usual in _USUAL.items()
    }
    lone = min(rates.lone_read or speeds[DISK_READ], speeds[DISK_READ])
    seconds = 1 / at_once / lone + (1 - 1 / at_once) / speeds[DISK_READ]
    return speeds | {DISK_READ: 1 / seconds}


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
        yield _source_of_hits(model)
    yield from _assumed_modes(layers, request, speeds)


def _source_of_hits(model: ModelFacts) -> str:
    if model.known_misses:
        return "hit rates follow from those of earlier runs of this model"
    if model.use_shares:
        return "hit rates follow from the profile's uses"
    return (
        "hit rates are the default policy's on routes of GPT-OSS-20B, until a run of this model"
        " has shown its own; --moe-profile FILE takes them from its uses"
    )


def _is_divided(layer: LayerPlan) -> bool:
    """Returns True if a layer's experts are in more than one tier."""
    counts = (layer.vram_slots, layer.num_resident)
    return any(0 < count < layer.num_experts for count in counts)
