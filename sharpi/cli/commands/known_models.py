"""`sharpi models`: well-known models with short names, and their expected speed on this machine."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from sharpi.cli.shared_options import JsonOption
from sharpi.errors import UsageError
from sharpi.settings.option import Option

if TYPE_CHECKING:
    from sharpi.hardware.info import HardwareInfo
    from sharpi.hub.catalogue import CatalogueEntry


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
    if as_json:
        print(json.dumps([_record(each, hardware) for each in entries]))
    else:
        from sharpi.cli.output.models_table import print_models

        print_models(entries, hardware)


def _hardware() -> "HardwareInfo":
    from sharpi.hardware.info import probe_hardware
    from sharpi.hardware.rates import measure_ram_read

    found = probe_hardware(with_gpu=True)
    rate = measure_ram_read(found.physical_cores)
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
    }
