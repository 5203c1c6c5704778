"""The options for placing a model: memory budgets, layers on the GPU, expert slots."""

from typing import Annotated, ClassVar

import typer
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import count, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import Device, Load, RunConfig
from sharpi.errors import UsageError
from sharpi.units import parse_size

_RUN_DEVICE: Device = "auto"
_LOAD: Load = "map"


def size(text: str) -> int:
    """Parses a SIZE into bytes for an option."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    except OverflowError:
        raise typer.BadParameter(f"{text[:20]}... is larger than any memory") from None


class TierOptions(Struct, frozen=True):
    """Budgets and placements; the planner decides what is not given."""

    heading: ClassVar = "Memory"

    load: Annotated[
        Load,
        option(
            "--load",
            "map: weights are used from the mapped file; copy: they are read into huge pages.",
        ),
    ] = _LOAD
    ram: Annotated[
        int | None,
        option(
            "--ram",
            "RAM for weights, KV cache and buffers, as in 12GiB or 2.5G.",
            "SIZE",
            parser=size,
            show_default="what is free, less a margin",
        ),
    ] = None
    vram: Annotated[
        int | None,
        option(
            "--vram",
            "Maximum GPU memory to use.",
            "SIZE",
            parser=size,
            show_default="what is free",
        ),
    ] = None
    device: Annotated[Device, option("--device", "auto: a GPU if one is usable, else the CPU.")] = (
        _RUN_DEVICE
    )
    gpu_layers: Annotated[
        int | None,
        option(
            "-g --gpu-layers -ngl",
            "Maximum number of whole layers on the GPU.",
            "N",
            min=0,
            callback=count,
            show_default="as many as fit",
        ),
    ] = None
    moe_slots: Annotated[
        int | None,
        option(
            "--moe-slots --moe-expert-cache-size",
            "Slots for experts in each layer.",
            "N",
            min=1,
            callback=count,
            show_default="as many as fit, if not all do",
        ),
    ] = None
    cpu_moe: Annotated[bool, option("--cpu-moe", "Keep all experts off the GPU.")] = False
    n_cpu_moe: Annotated[
        int,
        option(
            "--n-cpu-moe",
            "Keep the experts of the first N layers off the GPU.",
            "N",
            min=0,
            callback=count,
        ),
    ] = 0

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """Returns `config` with these options; raises UsageError for contradictory ones."""
        if self.cpu_moe and self.n_cpu_moe:
            sources.refuse("cpu_moe", "n_cpu_moe", "both place the experts")
        if self.device == "cpu" and (self.vram or self.gpu_layers):
            other = "vram" if self.vram else "gpu_layers"
            sources.refuse("device", other, "the other needs a GPU")
        return replace(
            config,
            load=self.load,
            ram=self.ram,
            vram=self.vram,
            device=self.device,
            gpu_layers=self.gpu_layers,
            moe_slots=self.moe_slots,
            cpu_moe=self.cpu_moe,
            num_cpu_moe=self.n_cpu_moe,
        )
