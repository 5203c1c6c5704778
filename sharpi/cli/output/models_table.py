"""Prints the table of `sharpi models`."""

import sys
from collections.abc import Iterable

from sharpi.cli.output.tables import Column, output_console, print_table
from sharpi.cli.output.terminal import fitted
from sharpi.engine.placement.estimate import estimate, least_bytes, whole_bytes
from sharpi.hardware.info import HardwareInfo
from sharpi.hub.catalogue import CatalogueEntry
from sharpi.tiers.plan import Tier, TierPlan

_COLUMNS = (
    Column("name"),
    Column("total", is_right=True, rank=3),
    Column("active", is_right=True, rank=2),
    Column("quant"),
    Column("file", is_right=True),
    Column("RAM", is_right=True),
    Column("least", is_right=True, rank=4),
    Column("tokens/s", is_right=True),
    Column("from"),
    Column("other quants", rank=5, wraps_at=12),
    Column("model", rank=6, wraps_at=24),
)
_NOTES = (
    "All figures are approximate. G is GiB. RAM: for all weights and 4096 tokens of context. least:"
    " what an MoE runs in with the rest on disk, slowly.",
    "tokens/s: what to expect of this machine at least and at most, as `sharpi plan` computes it,"
    " from the speed of RAM that other programs leave at this moment.",
    "`sharpi run NAME` asks to fetch a model, `sharpi pull NAME` fetches it.",
)


def print_models(entries: Iterable[CatalogueEntry], hardware: HardwareInfo) -> None:
    """Prints a row for each model with its default quant, and the sizes of its other quants."""
    console = output_console()
    print_table(console, _COLUMNS, [_cells(entry, hardware) for entry in entries])
    console.print()
    for note in _NOTES:
        print(fitted(note, sys.stdout, 0))


def _cells(entry: CatalogueEntry, hardware: HardwareInfo) -> tuple[str, ...]:
    plan = estimate(entry, entry.quant, hardware)
    others = (f"{quant} {_size(entry.file_bytes(quant))}" for quant in entry.quants[1:])
    return (
        entry.name,
        f"{entry.parameters:g}B",
        f"{entry.active:g}B",
        entry.quant,
        _size(entry.file_bytes(entry.quant)),
        _size(whole_bytes(entry, entry.quant, hardware)),
        _size(least_bytes(entry, entry.quant, hardware)),
        _speed(plan) if plan.fits else "-",
        _source(plan),
        ", ".join(others),
        f"{entry.title}, {entry.repository}",
    )


def _speed(plan: TierPlan) -> str:
    """Returns the lowest and highest expected decode speed in tokens/s, such as `12-30`."""
    least, most = plan.speed.least_tokens_per_second, plan.speed.tokens_per_second
    return f"{least:.2g}-{most:.2g}"


def _size(count: int) -> str:
    return f"~{count / (1 << 30):.1f}G"


def _source(plan: TierPlan) -> str:
    """Returns the slowest source of weights, "GPU", "RAM" or "disk", or "does not fit"."""
    if not plan.fits:
        return "does not fit"
    if any(layer.experts is Tier.DISK for layer in plan.layers):
        return "disk"
    if all(layer.dense_weights is Tier.VRAM for layer in plan.layers):
        return "GPU"
    return "RAM"
