"""Estimates decode speed from bandwidths: a token's bytes over the rate of where they are.

Within a layer on a GPU, hits and misses are served at the same time; nothing else is assumed to
overlap, and no other cost is counted. The hit rate is assumed to be the resident share: routes of
real text repeat, so caches do better.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from sharpi.hardware.info import Rates
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import LayerPlan, Speed, Tier
from sharpi.tiers.request import TierRequest

VRAM_READ, RAM_READ, DISK_READ, BUS = "VRAM read", "RAM read", "disk read", "bus"
# Bytes per second of a desktop GPU, two channels of DDR4, an SSD and 16 lanes of PCIe 3.
_USUAL = {VRAM_READ: 400e9, RAM_READ: 30e9, DISK_READ: 1.5e9, BUS: 12e9}
_MODES = {BUS: "cross the bus", RAM_READ: "are computed by the CPU"}


def expected_speed(
    model: ModelFacts,
    request: TierRequest,
    layers: Iterable[LayerPlan],
    output_on_gpu: bool,
    rates: Rates,
) -> Speed:
    """Estimates the speed at a short context; sources of no bytes are left out."""
    layers, speeds = tuple(layers), _speeds(rates)
    output = VRAM_READ if output_on_gpu else RAM_READ
    reads = [{output: float(model.output_bytes)}]
    for layer in layers:
        mode = _miss_mode(layer, request, speeds)
        reads += _layer_reads(layer, model.num_experts_per_token, mode)
    total: dict[str, float] = defaultdict(float)
    for read in reads:
        for source, count in read.items():
            total[source] += count
    seconds = sum(max(count / speeds[source] for source, count in r.items()) for r in reads)
    counts = {source: total[source] for source in _USUAL if total[source]}
    return Speed(
        tokens_per_second=1 / max(seconds, 1e-9),
        bound=max(counts, key=lambda source: counts[source] / speeds[source], default=RAM_READ),
        bytes_per_token={source: round(count) for source, count in counts.items()},
        hit_rate=_hit_rate(layers),
        assumptions=tuple(_assumptions(counts, rates, _ways(layers, request, speeds))),
    )


def _layer_reads(layer: LayerPlan, num_used: int, mode: str) -> Iterator[dict[str, float]]:
    """Yields what one token reads of a layer, in turn; each item is read at the same time.

    `mode`: the source of misses. An expert from disk is read from RAM afterwards.
    """
    yield {(VRAM_READ if layer.dense_weights is Tier.VRAM else RAM_READ): layer.dense_weights_bytes}
    if not layer.num_experts:
        return
    chosen = num_used * (layer.expert_bytes or 0)
    on_gpu = chosen * layer.vram_slots / layer.num_experts
    yield {VRAM_READ: on_gpu, mode: chosen - on_gpu}
    yield {DISK_READ: chosen * (1 - layer.num_resident / layer.num_experts)}


def _miss_mode(layer: LayerPlan, request: TierRequest, speeds: Mapping[str, float]) -> str:
    """Returns the source of a layer's misses; the GPU does not read slots in RAM."""
    is_reached = layer.dense_weights is Tier.VRAM and layer.experts is not Tier.DISK
    if not is_reached or request.keeps_off_gpu(layer.index) or request.miss == "cpu":
        return RAM_READ
    return BUS if request.miss != "auto" or speeds[BUS] > speeds[RAM_READ] else RAM_READ


def _ways(
    layers: Iterable[LayerPlan], request: TierRequest, speeds: Mapping[str, float]
) -> Iterator[str]:
    """Yields a sentence for each way in which misses of a GPU's slots are assumed to be served."""
    modes = {
        _miss_mode(layer, request, speeds)
        for layer in layers
        if layer.dense_weights is Tier.VRAM and layer.vram_slots < layer.num_experts
    }
    yield from (f"experts that are not on the GPU {_MODES[mode]}" for mode in sorted(modes))


def _hit_rate(layers: Iterable[LayerPlan]) -> float:
    """Returns the mean residency of the layers with experts; 1 if there are none."""
    shares = [
        (layer.vram_slots or layer.num_resident) / layer.num_experts
        for layer in layers
        if layer.num_experts
    ]
    return sum(shares) / len(shares) if shares else 1.0


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


def _assumptions(counts: Iterable[str], rates: Rates, modes: Iterable[str]) -> Iterator[str]:
    measured = _measured(rates)
    for source in counts:
        if measured[source] is None:
            yield f"{source} of {_USUAL[source] / 1e9:g} GB/s: not measured"
    yield "an expert is found in a slot as often as experts have slots"
    yield from modes
