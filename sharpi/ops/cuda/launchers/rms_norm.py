"""Launches the RMS-norm kernel."""

from math import gcd

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_BLOCK_COLUMNS = 32


def rms_norm(
    x: Span,
    weight: Span,
    out: Span | None,
    rounded: Span | None,
    *,
    tokens: int,
    width: int,
    groups: int,
    weight_per_group: bool,
    epsilon: float,
    planes: int,
) -> Launch:
    """Computes x (T, groups * width) / rms of each group * weight (width,) or (groups * width,).

    The result goes to floats `out`, which may be x, and/or to `rounded` activation rows of groups *
    width columns, a multiple of 32.
    """
    groups_each = 1 if rounded is None else _BLOCK_COLUMNS // gcd(width, _BLOCK_COLUMNS)
    return Launch(
        Kernel("rms_norm", "rms_norm"),
        grid=(tokens, groups // groups_each, 1),
        block=min(1024, -(-width // 64) * 32),
        arguments=(
            *(x, weight, out, rounded),
            *(np.int32(width), np.int32(groups), np.int32(groups_each)),
            *(np.int32(weight_per_group), np.float32(epsilon), np.int32(planes)),
        ),
        writes=frozenset({2, 3} | ({0} if out == x else set())),
    )
