"""Launches the kernel that computes rotary angles."""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_THREADS: Final = 128


def rope_angles(
    frequencies: Span, positions: Span, angles: Span, *, tokens: int, half: int, scale: float
) -> Launch:
    """Computes angles (T, 2, half): cosines, then sines, of position * frequency, times `scale`.

    frequencies are (half,), positions int32 (T,).
    """
    return Launch(
        Kernel("rope_angles", "rope_angles"),
        grid=(tokens, -(-half // _THREADS), 1),
        block=_THREADS,
        arguments=(frequencies, positions, angles, np.int32(half), np.float32(scale)),
        writes=frozenset({2}),
    )
