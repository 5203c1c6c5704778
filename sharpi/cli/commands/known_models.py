"""`sharpi models`: well-known models with short names, and their expected speed on this machine."""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from sharpi.cli.inputs import JsonOption
from sharpi.cli.output.terminal import fitted
from sharpi.errors import UsageError
from sharpi.settings.option import Option

if TYPE_CHECKING:
    from sharpi.hardware.info import HardwareInfo
    from sharpi.hub.catalogue import CatalogueEntry
    from sharpi.tiers.plan import TierPlan


def models(
    word: Annotated[str | None, Option("WORD", "Only the models with this in their name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List well-known models and their speed here.

    `sharpi run NAME` takes these short names, and so do the other commands; NAME:QUANT names
    another quant, as in qwen3:30b:Q8_0. The list ships with sharpi and needs no network. Sizes are
    approximate, from the number of parameters. Speeds are the range that `sharpi plan` expects,
    from the measured bandwidth of this machine's RAM.
    """
    from sharpi.hub.catalogue import CATALOGUE, entries_like

    entries = CATALOGUE if word is None else entries_like(word)
    if not entries:
        raise UsageError(f"no model of the list has '{word}' in its name; see `sharpi models`")
    hardware = _hardware()
    records = [_record(each, hardware) for each in entries]
    if as_json:
        print(json.dumps(records))
    else:
        _print(records)


_KERNEL_SHARE = 0.8  # of the speed of RAM that matrix kernels reach


def _hardware() -> "HardwareInfo":
    from sharpi.hardware.info import probe_hardware
    from sharpi.hardware.rates import measure_ram_read

    found = probe_hardware(with_gpu=True)
    rate = _KERNEL_SHARE * measure_ram_read(found.physical_cores)
    return replace(found, rates=replace(found.rates, ram_read=rate))


def _record(entry: "CatalogueEntry", hardware: "HardwareInfo") -> dict[str, Any]:
    from sharpi.engine.placement.estimate import estimate, least_bytes, whole_bytes

    plan = estimate(entry, entry.quant, hardware)
    return {
        "name": entry.name,
        "title": entry.title,
        "repository": entry.repository,
        "parameters_billions": entry.parameters,
        "active_parameters_billions": entry.active,
        "quant": entry.quant,
        "approximate_file_bytes": {quant: entry.file_bytes(quant) for quant in entry.quants},
        "approximate_ram_bytes": whole_bytes(entry, entry.quant, hardware),
        "approximate_least_ram_bytes": least_bytes(entry, entry.quant, hardware),
        "fits_here": plan.fits,
        "least_tokens_per_second_here": plan.speed.least_tokens_per_second if plan.fits else None,
        "tokens_per_second_here": plan.speed.tokens_per_second if plan.fits else None,
        "source_here": _source(plan),
    }


_NOTES = (
    "All figures are approximate. G is GiB. RAM: for all weights and 4096 tokens of context. least:"
    " what an MoE runs in with the rest on disk, slowly.",
    "tokens/s: what to expect of this machine, as `sharpi plan` computes it,"
    " from the speed of RAM that other programs leave at this moment.",
    "`sharpi run NAME` asks to fetch a model, `sharpi pull NAME` fetches it.",
)


def _print(records: Iterable[dict[str, Any]]) -> None:
    """Prints a row for each model with its default quant, and the sizes of its other quants."""
    from sharpi.cli.output.tables import left, output_console, print_table, right

    columns = (
        *left("name"),
        *right("total", rank=3),
        *right("active", rank=2),
        *left("quant"),
        *right("file", "RAM"),
        *right("least", rank=4),
        *right("tokens/s"),
        *left("from"),
        *left("other quants", rank=5, wraps_at=12),
        *left("model", rank=6, wraps_at=24),
    )
    console = output_console()
    print_table(console, columns, map(_cells, records))
    console.print()
    for note in _NOTES:
        print(fitted(note, sys.stdout, 0))


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    (_, file_bytes), *others = record["approximate_file_bytes"].items()
    least, most = record["least_tokens_per_second_here"], record["tokens_per_second_here"]
    return (
        record["name"],
        f"{record['parameters_billions']:g}B",
        f"{record['active_parameters_billions']:g}B",
        record["quant"],
        _size(file_bytes),
        _size(record["approximate_ram_bytes"]),
        _size(record["approximate_least_ram_bytes"]),
        f"{least:.2g}-{most:.2g}" if record["fits_here"] else "-",
        record["source_here"],
        ", ".join(f"{quant} {_size(count)}" for quant, count in others),
        f"{record['title']}, {record['repository']}",
    )


def _size(count: int) -> str:
    return f"~{count / (1 << 30):.1f}G"


def _source(plan: "TierPlan") -> str:
    """Returns the slowest source of weights, "GPU", "RAM" or "disk", or "does not fit"."""
    from sharpi.tiers.plan import Tier

    if not plan.fits:
        return "does not fit"
    if any(layer.experts is Tier.DISK for layer in plan.layers):
        return "disk"
    if all(layer.dense_weights is Tier.VRAM for layer in plan.layers):
        return "GPU"
    return "RAM"
