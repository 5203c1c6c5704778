"""Parses the values of --device, --vram and --tensor-split, which may list several GPUs."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple, cast, get_args

import click
from msgspec.structs import replace

from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import Device, RunConfig

_GPUS = re.compile(r"cuda:?\d+(?:,(?:cuda:?)?\d+)*")
_MOST_GPUS = 1024


class DeviceNames(NamedTuple):
    """The kind of device, and the CUDA indices of the GPUs that the user named."""

    device: Device
    gpus: tuple[int, ...] = ()


def device_of(text: str) -> DeviceNames:
    """Parses --device: auto, cpu, cuda, or GPUs as torch or llama.cpp name them.

    Examples are `cuda:0,1` and `CUDA0,CUDA1`. Raises BadParameter for other names.
    """
    name = text.lower()
    if name == "none":
        return DeviceNames("cpu")
    if name in get_args(Device):
        return DeviceNames(cast(Device, name))
    if not _GPUS.fullmatch(name):
        raise click.BadParameter(
            f"{text!r} is not one of 'auto', 'cpu', 'cuda', 'cuda:0,1', 'none'."
        )
    gpus = tuple(int(number) for number in re.findall(r"\d+", name))
    if len(set(gpus)) < len(gpus):
        raise click.BadParameter(f"{text!r} names a GPU twice.")
    if max(gpus) >= _MOST_GPUS:
        raise click.BadParameter(f"{text!r}: GPUs are counted from cuda:0.")
    return DeviceNames("cuda", gpus)


def list_of(read: Callable[[str], int]) -> Callable[[str], tuple[int, ...]]:
    """Returns a parser of comma-separated values, which parses each value with `read`."""
    return lambda text: tuple(map(read, text.split(",")))


def shares_of(text: str) -> tuple[float, ...]:
    """Parses the shares of layers for each GPU, as in 3,1 or 3/1."""
    try:
        shares = tuple(float(each) for each in re.split("[,/]", text))
    except ValueError:
        shares = ()
    if any(each < 0 or not math.isfinite(each) for each in shares) or not sum(shares):
        raise click.BadParameter(f"{text!r}: give a share for each GPU, as in 3,1.")
    return shares


def with_gpus(
    config: RunConfig,
    sources: OptionSources,
    named: DeviceNames,
    vram: tuple[int, ...],
    shares: tuple[float, ...],
) -> RunConfig:
    """Returns `config` with the GPUs of --device, --vram and --tensor-split.

    If --device names no GPU, the longer one of `vram` and `shares` sets the number of GPUs. Raises
    UsageError if the options contradict each other.
    """
    count = len(named.gpus)
    if count and 1 < len(vram) != count:
        sources.raise_conflict("device", "vram", f"{len(vram)} sizes for {_gpus(count)}")
    if count and len(shares) > count:
        sources.raise_conflict("device", "tensor_split", f"{len(shares)} shares for {_gpus(count)}")
    if 1 < len(vram) < len(shares):
        sources.raise_conflict(
            "vram", "tensor_split", f"{len(shares)} shares for {_gpus(len(vram))}"
        )
    most = max(len(vram), len(shares))
    return replace(
        config,
        device=named.device,
        gpus=named.gpus or (tuple(range(most)) if most > 1 else ()),
        vram=max(vram, default=None),
        vrams=vram if len(vram) > 1 else (),
        tensor_split=shares if len(shares) > 1 else (),
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
