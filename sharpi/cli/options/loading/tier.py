"""The options for placing a model: memory budgets, layers on the GPU, expert slots."""

import re
from typing import Annotated, ClassVar, cast, get_args

import click
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import LARGEST_COUNT, count, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import Device, Load, RunConfig
from sharpi.errors import UsageError
from sharpi.units import parse_size

_LOAD: Load = "auto"
AS_MANY_AS_FIT = -1
_LEAST_MEMORY = 1 << 20  # bytes that a number without a unit may mean


def size(text: str) -> int:
    """Parses a SIZE into bytes for an option."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    except OverflowError:
        raise click.BadParameter("larger than any memory") from None


def memory(text: str) -> int:
    """Parses a SIZE of memory; refuses a small number that lacks its unit."""
    value = size(text)
    if 0 < value < _LEAST_MEMORY and text.strip().isdecimal():
        raise click.BadParameter(f"{text!r} is {value} bytes; did you mean {text.strip()}GiB?")
    return value


def _device_of(text: str) -> str:
    """Reads a device by sharpi's name, or as llama.cpp and torch spell it: CUDA0, cuda:0, none."""
    name = text.lower()
    if name == "none":
        return "cpu"
    number = re.fullmatch(r"cuda:?(\d+)", name)
    if number is not None and int(number[1]):
        raise click.BadParameter(
            f"{text!r}: sharpi uses the first GPU; CUDA_VISIBLE_DEVICES={number[1]} makes it that."
        )
    if number is not None:
        return "cuda"
    if name in get_args(Device):
        return name
    raise click.BadParameter(f"{text!r} is not one of 'auto', 'cpu', 'cuda', 'CUDA0', 'none'.")


def _layers_of(text: str) -> int:
    """Reads a number of layers; -1, auto and all are as many as fit."""
    if text in ("-1", "auto", "all"):
        return AS_MANY_AS_FIT
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_COUNT:
        raise click.BadParameter(f"{text!r} is not a number of layers, as in 20; -1: all that fit.")
    return int(text)


class TierOptions(Struct, frozen=True):
    """Budgets and placements; the planner decides what is not given."""

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
        int | None,
        option(
            "--vram",
            "Maximum GPU memory to use.",
            "SIZE",
            parser=memory,
            show_default="what is free",
            is_everyday=True,
        ),
    ] = None
    device: Annotated[
        str | None,
        option(
            "--device",
            "auto: a GPU if one is usable, else the CPU; also CUDA0, cuda:0 or none.",
            "auto|cpu|cuda",
            parser=_device_of,
            autocompletion=lambda: list(get_args(Device)),
            show_default="auto",
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
            sources.refuse("cpu_moe", "n_cpu_moe", "both place the experts")
        gpu_layers = None if self.gpu_layers == AS_MANY_AS_FIT else self.gpu_layers
        if self.device == "cpu" and (self.vram or gpu_layers):
            other = "vram" if self.vram else "gpu_layers"
            sources.refuse("device", other, "the other needs a GPU")
        return replace(
            config,
            load=self.load,
            ram=self.ram,
            vram=self.vram,
            device=cast(Device, self.device or "auto"),
            gpu_layers=gpu_layers,
            moe_slots=self.moe_slots,
            cpu_moe=self.cpu_moe,
            num_cpu_moe=self.n_cpu_moe,
        )
