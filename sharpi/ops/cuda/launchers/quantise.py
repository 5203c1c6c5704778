"""Launches the kernel that quantises activations to int8."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch, Span

_BLOCK = 256
_WARP_COLUMNS = 32


class QuantiseArguments(NamedTuple):
    """The arguments of the kernel `quantise`."""

    x: Argument
    quantised: Argument
    columns: Argument
    planes: Argument


def quantise(x: Span, quantised: Span, *, tokens: int, columns: int, planes: int) -> Launch:
    """Quantises floats (T, columns) to int8 rows with a scale per 32 columns, to `quantised`.

    With two planes, the second holds the quantised remainders (kernels/cuda/quant/activations.cuh).
    Columns are a multiple of 32. The grid has tokens on its x axis, because a batch may have a row
    for each head of each token, and the y axis is limited to 65,535 blocks.
    """
    warps = columns // _WARP_COLUMNS
    return Launch(
        Kernel("quantise", "quantise"),
        grid=(tokens, -(-warps // (_BLOCK // 32)), 1),
        block=_BLOCK,
        arguments=QuantiseArguments(x, quantised, np.int32(columns), np.int32(planes)),
        writes=frozenset({1}),
    )
