"""Starts of what cuts rows into parts and puts parts together, run by run."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

MAX_PARTS: Final = 3
_THREADS: Final = 256


def split(x: Span, outs: Sequence[Span | None], widths: Sequence[int], *, runs: int) -> Launch:
    """outs[i] (runs, widths[i]) of x (runs, sum of widths); None is left out. At most three."""
    count, unused = runs * sum(widths), MAX_PARTS - len(outs)
    return Launch(
        Kernel("split", "split"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=(
            *(x, *outs, *(None,) * unused),
            *(np.int32(width) for width in (*widths, *(0,) * unused)),
            np.int32(count),
        ),
        writes=frozenset(range(1, 1 + len(outs))),
    )


def join(first: Span, second: Span, out: Span, *, widths: tuple[int, int], runs: int) -> Launch:
    """out (runs, sum of widths) = first (runs, widths[0]) and second (runs, widths[1])."""
    count = runs * sum(widths)
    return Launch(
        Kernel("join", "join"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=(first, second, out, *map(np.int32, (*widths, count))),
        writes=frozenset({2}),
    )
