"""Launches the kernels that split rows into parts, and that join parts."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

MAX_PARTS: Final = 3
_THREADS: Final = 256


def split(x: Span, outs: Sequence[Span | None], widths: Sequence[int], *, runs: int) -> Launch:
    """Splits x (runs, sum of widths) into outs[i] (runs, widths[i]), at most three.

    Parts whose `outs` is None are skipped.
    """
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
    """Joins first (runs, widths[0]) and second (runs, widths[1]) to out (runs, sum of widths)."""
    count = runs * sum(widths)
    return Launch(
        Kernel("join", "join"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=(first, second, out, *map(np.int32, (*widths, count))),
        writes=frozenset({2}),
    )
