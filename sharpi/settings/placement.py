"""Reads the values of --ram, --vram, --device, --tensor-split, --gpu-layers and --disable.

Each function raises ValueError for a text that it does not understand.
"""

import math
import re
from typing import Any

from sharpi.errors import UsageError
from sharpi.settings.option import LARGEST_COUNT
from sharpi.units import parse_size

_GPUS = re.compile(r"cuda:?\d+(?:,(?:cuda:?)?\d+)*")
_MOST_GPUS = 1024
_LEAST_MEMORY = 1 << 20  # a number without a unit must be at least this many bytes


def size(text: str) -> int:
    """Returns the bytes in a size such as 12GiB."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    except OverflowError:
        raise ValueError("larger than any memory") from None


def memory(text: str) -> int:
    """Returns the bytes of a size of memory, which needs a unit if it is small."""
    value = size(text)
    if 0 < value < _LEAST_MEMORY and text.strip().isdecimal():
        raise ValueError(f"{text!r} is {value} bytes; did you mean {text.strip()}GiB?")
    return value


def vram_of(text: str) -> dict[str, Any]:
    """Returns the fields that sizes of one or several GPUs set."""
    sizes = tuple(map(memory, text.split(",")))
    return {"vram": max(sizes), "vrams": sizes if len(sizes) > 1 else ()}


def device_of(text: str) -> dict[str, Any]:
    """Returns the fields that auto, cpu, cuda, `cuda:0,1` or `CUDA0,CUDA1` set."""
    name = text.lower()
    if name in ("auto", "cpu", "cuda", "none"):
        return {"device": "cpu" if name == "none" else name}
    if not _GPUS.fullmatch(name):
        raise ValueError(f"{text!r} is not one of 'auto', 'cpu', 'cuda', 'cuda:0,1', 'none'")
    gpus = tuple(int(number) for number in re.findall(r"\d+", name))
    if len(set(gpus)) < len(gpus):
        raise ValueError(f"{text!r} names a GPU twice")
    if max(gpus) >= _MOST_GPUS:
        raise ValueError(f"{text!r}: GPUs are counted from cuda:0")
    return {"device": "cuda", "gpus": gpus}


def shares_of(text: str) -> tuple[float, ...]:
    """Returns the shares of layers for each GPU, as in 3,1 or 3/1."""
    try:
        shares = tuple(float(each) for each in re.split("[,/]", text))
    except ValueError:
        shares = ()
    if any(each < 0 or not math.isfinite(each) for each in shares) or not sum(shares):
        raise ValueError(f"{text!r}: give a share for each GPU, as in 3,1")
    return shares


def layers_of(text: str) -> int | None:
    """Returns a number of layers; None, as many as fit, for -1, auto and all."""
    if text in ("-1", "auto", "all"):
        return None
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_COUNT:
        raise ValueError(f"{text!r} is not a number of layers, as in 20; -1: all that fit")
    return int(text)
