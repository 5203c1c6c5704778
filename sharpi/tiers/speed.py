"""Decode speed that the bandwidths allow: bytes of a token over the rate of where they lie.

Nothing is taken to overlap and no other cost is counted. A slot is taken to be hit as often as
residency says: routes of real text repeat, so caches do better.
"""

from collections.abc import Iterable

from sharpi.hardware import Rates
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import LayerPlan, Speed, Tier

VRAM_READ, RAM_READ, DISK_READ, BUS = "VRAM read", "RAM read", "disk read", "bus"
# A desktop card, two channels of DDR4, an SSD and sixteen lanes of PCIe 3: bytes a second.
_USUAL = {VRAM_READ: 400e9, RAM_READ: 30e9, DISK_READ: 1.5e9, BUS: 12e9}


def expected_speed(
    model: ModelFacts, layers: Iterable[LayerPlan], output_on_card: bool, rates: Rates
) -> Speed:
    """The speed at a short context; sources of no bytes are left out."""
    layers = tuple(layers)
    speeds = _speeds(rates)
    missed = BUS if speeds[BUS] > speeds[RAM_READ] else RAM_READ
    counts = dict.fromkeys(_USUAL, 0.0)
    counts[VRAM_READ if output_on_card else RAM_READ] += model.output_bytes
    for layer in layers:
        for source, count in _layer_bytes(layer, model.num_experts_per_token, missed):
            counts[source] += count
    counts = {source: count for source, count in counts.items() if count}
    seconds = {source: count / speeds[source] for source, count in counts.items()}
    return Speed(
        tokens_per_second=1 / max(sum(seconds.values()), 1e-9),
        bound=max(seconds, key=seconds.__getitem__, default=RAM_READ),
        bytes_per_token={source: round(count) for source, count in counts.items()},
        hit_rate=_hit_rate(layers),
        assumptions=tuple(_assumptions(counts, rates)),
    )


def _layer_bytes(layer: LayerPlan, num_used: int, missed: str) -> Iterable[tuple[str, float]]:
    """What one token reads of a layer. An expert from disk is read from RAM afterwards."""
    yield (VRAM_READ if layer.trunk is Tier.VRAM else RAM_READ), layer.trunk_bytes
    if not layer.num_experts:
        return
    chosen = num_used * (layer.expert_bytes or 0)
    on_card = layer.vram_slots / layer.num_experts
    yield VRAM_READ, chosen * on_card
    yield (missed if layer.trunk is Tier.VRAM else RAM_READ), chosen * (1 - on_card)
    yield DISK_READ, chosen * (1 - layer.num_resident / layer.num_experts)


def _hit_rate(layers: Iterable[LayerPlan]) -> float:
    """Mean residency of the layers with experts; 1 without any."""
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


def _assumptions(counts: Iterable[str], rates: Rates) -> Iterable[str]:
    measured = _measured(rates)
    for source in counts:
        if measured[source] is None:
            yield f"{source} of {_USUAL[source] / 1e9:g} GB/s: not measured"
    yield "an expert is found in a slot as often as experts have slots"
