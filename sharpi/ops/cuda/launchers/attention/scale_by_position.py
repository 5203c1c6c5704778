"""Launches the kernel that scales queries by their position."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_THREADS = 256


def scale_by_position(
    x: Span, positions: Span, *, tokens: int, width: int, interval: int, rate: float, offset: int
) -> Launch:
    """Multiplies x (T, width) by 1 + rate * ln(1 + floor((position + offset) / interval))."""
    return Launch(
        Kernel("scale_by_position", "scale_by_position"),
        grid=(-(-width // _THREADS), tokens, 1),
        block=_THREADS,
        arguments=(
            x,
            positions,
            np.int32(width),
            np.int32(interval),
            np.float32(rate),
            np.int32(offset),
        ),
        writes=frozenset({0}),
    )
