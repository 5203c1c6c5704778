"""`sharpi plan`: the placement of a model on this or another machine, without loading it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.inputs import JsonOption, ModelArgument, ModelOption, find_model
from sharpi.cli.run_config import OptionSources, complete
from sharpi.errors import UsageError
from sharpi.settings import USUAL_DRAFTS, RunConfig
from sharpi.settings.option import Only, Option, local_option

if TYPE_CHECKING:
    from sharpi.gguf.reader import GgufFile
    from sharpi.hardware.info import HardwareInfo
    from sharpi.tiers.plan import TierPlan


_PLANNED = Only(
    (
        *("Memory", "Experts not on the GPU", "Machine"),
        *("ctx_size", "context_shift", "spec_draft_model"),
    )
)


def plan(
    context: typer.Context,
    config: Annotated[RunConfig, _PLANNED],
    model: ModelArgument = None,
    model_file: ModelOption = None,
    moe_profile: Annotated[
        Path | None, Option("--moe-profile PATH", "Expect hits by the expert uses in this file.")
    ] = None,
    hosts: Annotated[
        Path | None,
        local_option("--hosts FILE", "Divide the model among the machines of this TOML file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a model would live, and how fast it can be.

    The plan shows every layer's dense weights and experts with their tier (VRAM, RAM or disk), KV
    cache, buffers, expert slots beside the recommended number, and the range of speeds that the
    measured bandwidths allow. `--vram 12GiB` plans for a GPU that need not exist, and `--vram
    24GiB,24GiB` for two. The exit code is 1 if the model does not fit in the RAM that was asked
    for.
    """
    from sharpi.gguf.reader import open_gguf
    from sharpi.tiers.notes import is_fixed

    path = find_model(context, model)
    config = complete(context, config, path)
    sources = OptionSources(context)
    config = replace(config, experts=replace(config.experts, profile=moe_profile))
    if moe_profile is not None and not moe_profile.exists():
        raise UsageError(f"{sources.name('moe_profile')} {moe_profile}: no such file")
    if hosts is not None and config.speculation.draft_model is not None:
        sources.raise_conflict(
            "hosts", "spec_draft_model", "a plan of several machines has no draft model"
        )
    if hosts is not None:
        _plan_hosts(config, hosts, as_json=as_json)
        return
    with open_gguf(path) as file:
        decided = plan_for(config, file)
    if as_json:
        print(json.dumps({"model": str(path)} | decided.to_dict()))
    else:
        from sharpi.cli.output.plan_table import print_plan

        print_plan(path, decided)
    if not decided.fits and is_fixed(config):
        raise typer.Exit(1)


def _plan_hosts(config: RunConfig, hosts_file: Path, *, as_json: bool) -> None:
    """Prints how layers are divided among machines; exits with 1 if their RAM is too small."""
    from sharpi.cli.output.plan_table import division_record, print_division
    from sharpi.engine.cluster.agreement import divide
    from sharpi.engine.cluster.hosts_file import planned_loans, read_hosts, with_lenders
    from sharpi.engine.settings import decide
    from sharpi.gguf.reader import open_gguf
    from sharpi.hardware.info import probe_hardware
    from sharpi.model.config import read_config

    hosts = read_hosts(hosts_file)
    with open_gguf(config.model) as file:
        model = read_config(file)
        hardware = probe_hardware(config.instruction_set)
        settings = decide(config, file, model, hardware)
        working = [each.machine() for each in hosts if not each.only_lends]
        division = with_lenders(divide(file, model, settings, working), hosts)
        loans = [*planned_loans(config, file, model, settings, hardware, division, hosts)]
    if as_json:
        print(json.dumps(division_record(config.model, division, hosts, loans)))
    else:
        print_division(config.model, division, hosts, loans)
    if division.overflow:
        raise typer.Exit(1)


def plan_for(config: RunConfig, file: "GgufFile") -> "TierPlan":
    """Returns the plan, with speeds from measured bandwidths of the tiers; raises SharpiError."""
    from sharpi.engine.draft_model import draft_model_notes
    from sharpi.engine.head_choice import choose_head
    from sharpi.engine.kv.kv_choice import kv_notes
    from sharpi.engine.placement.measured import measured_rates
    from sharpi.engine.placement.placement import Placement, file_notes, resident_notes
    from sharpi.engine.settings import decide
    from sharpi.hardware.info import probe_hardware
    from sharpi.model.config import read_config

    hardware = probe_hardware(
        config.instruction_set, with_gpu=config.device != "cpu" and config.vram is None
    )
    hardware = _with_named_gpus(hardware, config)
    if config.device == "cuda" and config.vram is None and not hardware.free_vram:
        raise UsageError("--device cuda: no GPU was found; give --vram SIZE to plan for one")
    model = read_config(file)
    has_gpu = config.device != "cpu" and bool(config.vram or hardware.free_vram)
    if config.speculation.draft_model is None:
        config = replace(config, speculation=USUAL_DRAFTS)
    file, model, config, why = choose_head(file, model, config, has_gpu=has_gpu)
    settings = decide(config, file, model, hardware)
    placement = Placement(config, file, model, settings, hardware)
    sources = placement.plan().speed.bytes_per_token
    decided = placement.plan(measured_rates(sources, file, model, settings))
    saved = kv_notes(model, settings.context_size, settings.window_pages)
    notes = (*why, *settings.kv_notes, *saved)
    notes = (*notes, *draft_model_notes(config, file, decided, hardware))
    notes = (*file_notes(config, decided), *notes)
    return replace(decided, notes=(*decided.notes, *resident_notes(config, decided), *notes))


def _with_named_gpus(hardware: "HardwareInfo", config: RunConfig) -> "HardwareInfo":
    """Returns `hardware` with only the GPUs of --device; raises UsageError if one is missing."""
    free = hardware.free_vrams
    if not free or not config.gpus:
        return hardware
    unknown = [index for index in config.gpus if index >= len(free)]
    if unknown:
        raise UsageError(
            f"cuda:{unknown[0]} is not there: the driver shows {len(free)} GPU(s), from cuda:0 on;"
            " give --vram SIZE to plan for others"
        )
    named = tuple(free[index] for index in config.gpus)
    return replace(hardware, free_vram=named[0], free_vrams=named)
