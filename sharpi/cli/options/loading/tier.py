"""The options for placing a model: memory budgets, layers on the GPU, expert slots."""

from typing import Annotated, ClassVar, get_args

import click
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.loading.gpu_list import (
    DeviceNames,
    device_of,
    list_of,
    shares_of,
    with_gpus,
)
from sharpi.cli.options.option import LARGEST_COUNT, count, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import Device, Load, RunConfig
from sharpi.errors import UsageError
from sharpi.units import parse_size

_LOAD: Load = "auto"
AS_MANY_AS_FIT = -1
_LEAST_MEMORY = 1 << 20  # a number without a unit must be at least this many bytes


def size(text: str) -> int:
    """Parses a size such as 12GiB into bytes; raises BadParameter for an invalid one."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    except OverflowError:
        raise click.BadParameter("larger than any memory") from None


def memory(text: str) -> int:
    """Parses a size of memory into bytes; raises BadParameter for a small number without a unit."""
    value = size(text)
    if 0 < value < _LEAST_MEMORY and text.strip().isdecimal():
        raise click.BadParameter(f"{text!r} is {value} bytes; did you mean {text.strip()}GiB?")
    return value


def _layers_of(text: str) -> int:
    """Parses a number of layers; returns AS_MANY_AS_FIT for -1, auto and all."""
    if text in ("-1", "auto", "all"):
        return AS_MANY_AS_FIT
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_COUNT:
        raise click.BadParameter(f"{text!r} is not a number of layers, as in 20; -1: all that fit.")
    return int(text)


class TierOptions(Struct, frozen=True):
    """Memory budgets and placements; the planner decides what is left unset."""

    heading: ClassVar = "Memory"

    load: Annotated[
        Load,
        option(
            "--load",
            "map: weights are used from the mapped file; copy: they are read into huge pages; auto:"
            " those that a GPU reads from RAM are copied.",
        ),
    ] = _LOAD
    ram: Annotated[
        int | None,
        option(
            "--ram",
            "RAM for weights, KV cache and buffers, as in 12GiB or 2.5G.",
            "SIZE",
            parser=memory,
            show_default="what is free, less a margin",
            is_everyday=True,
        ),
    ] = None
    vram: Annotated[
        tuple[int, ...] | None,
        option(
            "--vram",
            "Maximum GPU memory to use; 24GiB,16GiB for two GPUs.",
            "SIZE",
            parser=list_of(memory),
            show_default="what is free",
            is_everyday=True,
        ),
    ] = None
    device: Annotated[
        DeviceNames | None,
        option(
            "--device",
            "auto: a GPU if one is usable, else the CPU, and further GPUs where one does not hold "
            "the model; cuda:0,1 (or CUDA0,CUDA1): these, which divide the layers.",
            "auto|cpu|cuda",
            parser=device_of,
            autocompletion=lambda: list(get_args(Device)),
            show_default="auto",
        ),
    ] = None
    tensor_split: Annotated[
        tuple[float, ...] | None,
        option(
            "-ts --tensor-split",
            "Shares of the layers that the GPUs get, as in 3,1.",
            "N,N",
            parser=shares_of,
            show_default="by memory and speed",
        ),
    ] = None
    gpu_layers: Annotated[
        int | None,
        option(
            "-g --gpu-layers -ngl --n-gpu-layers --ngl",
            "Maximum number of whole layers on the GPU; -1, auto or all: as many as fit.",
            "N",
            parser=_layers_of,
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
            also="SHARPI_MOE_EXPERT_CACHE_SIZE",
            show_default="as many as fit, if not all do",
        ),
    ] = None
    cpu_moe: Annotated[bool, option("-cmoe --cpu-moe --cmoe", "Keep all experts off the GPU.")] = (
        False
    )
    n_cpu_moe: Annotated[
        int,
        option(
            "-ncmoe --n-cpu-moe --ncmoe",
            "Keep the experts of the first N layers off the GPU.",
            "N",
            min=0,
            callback=count,
        ),
    ] = 0

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """Returns `config` with these options; raises UsageError for contradictory ones."""
        if self.cpu_moe and self.n_cpu_moe:
            sources.raise_conflict("cpu_moe", "n_cpu_moe", "both place the experts")
        gpu_layers = None if self.gpu_layers == AS_MANY_AS_FIT else self.gpu_layers
        named = self.device or DeviceNames("auto")
        needs_gpu = (
            ("vram", any(self.vram or ())),
            ("gpu_layers", gpu_layers),
            ("tensor_split", self.tensor_split),
        )
        other = next((name for name, value in needs_gpu if value), None)
        if named.device == "cpu" and other is not None:
            sources.raise_conflict("device", other, "the other needs a GPU")
        config = with_gpus(config, sources, named, self.vram or (), self.tensor_split or ())
        return replace(
            config,
            load=self.load,
            ram=self.ram,
            gpu_layers=gpu_layers,
            moe_slots=self.moe_slots,
            cpu_moe=self.cpu_moe,
            num_cpu_moe=self.n_cpu_moe,
        )
