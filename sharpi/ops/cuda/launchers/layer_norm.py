"""Launches the layer-norm kernel."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.launchers.warps import whole_warps


def layer_norm(
    x: Span,
    weight: Span,
    bias: Span,
    out: Span | None,
    quantised: Span | None,
    *,
    tokens: int,
    width: int,
    epsilon: float,
    planes: int,
) -> Launch:
    """Computes (x - mean) / deviation * weight + bias of x (T, width); weight and bias (width,).

    The result is written as floats to `out` and/or quantised to `quantised` (see `quantise`),
    for which the width is a multiple of 32.
    """
    return Launch(
        Kernel("layer_norm", "layer_norm"),
        grid=(tokens, 1, 1),
        block=whole_warps(-(-width // 2), 1024),
        arguments=(
            *(x, weight, bias, out, quantised),
            *(np.int32(width), np.float32(epsilon), np.int32(planes)),
        ),
        writes=frozenset({3, 4}),
    )
