"""Launches the kernel that rounds activations to 8 bits."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_BLOCK = 256
_WARP_COLUMNS = 32


def quantise(x: Span, rounded: Span, *, tokens: int, columns: int, planes: int) -> Launch:
    """Rounds floats (T, columns) to activation rows of 1 or 2 planes; columns % 32 is 0.

    The grid has tokens on its x axis, because a batch may have a row for each head of each token,
    and the y axis ends at 65,535.
    """
    warps = columns // _WARP_COLUMNS
    return Launch(
        Kernel("quantise", "quantise"),
        grid=(tokens, -(-warps // (_BLOCK // 32)), 1),
        block=_BLOCK,
        arguments=(x, rounded, np.int32(columns), np.int32(planes)),
        writes=frozenset({1}),
    )
