"""Launches the kernels that split rows into parts, and that join parts."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from sharpi.device.launch import Argument, Kernel, Launch, Span, is_same_address
from sharpi.ops.cuda.launchers.named_arguments import argument_indices, flat, named
from sharpi.ops.cuda.launchers.quantise import QuantiseArguments

MAX_PARTS: Final = 3
_THREADS: Final = 256
_QUANT_BLOCK: Final = 32  # columns that are quantised together


class PartsArguments(NamedTuple):
    """Three arguments, one for each part of a row."""

    a: Argument
    b: Argument
    c: Argument


class SplitArguments(NamedTuple):
    """The arguments of the kernel `split`."""

    x: Argument
    outs: PartsArguments
    quantised: Argument
    widths: PartsArguments
    num_values: Argument
    planes: Argument


class JoinArguments(NamedTuple):
    """The arguments of the kernel `join`."""

    first: Argument
    second: Argument
    out: Argument
    width: Argument
    second_width: Argument
    num_values: Argument


def split(x: Span, outs: Sequence[Span | None], widths: Sequence[int], *, runs: int) -> Launch:
    """Splits x (runs, sum of widths) into outs[i] (runs, widths[i]), at most three.

    Parts whose `outs` is None are skipped.
    """
    count, unused = runs * sum(widths), MAX_PARTS - len(outs)
    sizes = map(np.int32, (*widths, *(0,) * unused))
    return Launch(
        Kernel("split", "split"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=flat(
            SplitArguments(
                *(x, PartsArguments(*outs, *(None,) * unused), None, PartsArguments(*sizes)),
                *(np.int32(count), np.int32(0)),
            )
        ),
        writes=argument_indices(SplitArguments, *(f"outs.{name}" for name in "abc"[: len(outs)])),
    )


def with_quantise(split: Launch, quantise: Launch) -> Launch | None:
    """Returns one launch for `split` and the quantising of each run of its first part.

    Returns None if `quantise` reads something else, or if parts are not whole blocks of 32 values.
    """
    given = named(SplitArguments, split.arguments)
    following = QuantiseArguments(*quantise.arguments)
    is_first = is_same_address(given.outs.a, following.x) and following.columns == given.widths.a
    widths = [width for width in given.widths if isinstance(width, np.int32)]
    is_whole = all(width % _QUANT_BLOCK == 0 for width in widths)
    if not (is_first and is_whole and given.num_values == quantise.grid[0] * sum(widths)):
        return None
    both = given._replace(quantised=following.quantised, planes=following.planes)
    return replace(
        split,
        arguments=flat(both),
        writes=split.writes | argument_indices(SplitArguments, "quantised"),
    )


def join(first: Span, second: Span, out: Span, *, widths: tuple[int, int], runs: int) -> Launch:
    """Joins first (runs, widths[0]) and second (runs, widths[1]) to out (runs, sum of widths)."""
    count = runs * sum(widths)
    return Launch(
        Kernel("join", "join"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=JoinArguments(
            *(first, second, out), *(np.int32(widths[0]), np.int32(widths[1])), np.int32(count)
        ),
        writes=argument_indices(JoinArguments, "out"),
    )
