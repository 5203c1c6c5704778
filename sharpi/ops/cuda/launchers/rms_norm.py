"""Launches the RMS-norm kernel."""

from math import gcd

import numpy as np
from msgspec.structs import replace

from sharpi.device.launch import Argument, Kernel, Launch, Span, is_same_place

_BLOCK_COLUMNS = 32
# The arguments of kernels that can norm their result (NORM_TAIL of norm_row.cuh), without a norm.
NO_NORM: tuple[Argument, ...] = (None, None, None, None, np.float32(0), np.int32(0), np.int32(0))


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


def with_norm(
    product: Launch, norm: Launch, first: int, out: Argument, rows: int, counter: Span
) -> Launch | None:
    """Returns one launch for a product of one row and the norm of that row.

    `out` is the product's result, of `rows` values. Returns None if `norm` is not the norm of all
    of it. In the product's arguments, those for a norm begin at `first`. `counter` is an int32
    zero.
    """
    x, weight, normed, rounded, width, groups, _, _, epsilon, planes = norm.arguments
    is_whole = norm.grid == (1, 1, 1) and groups == 1 and width == rows
    if not is_whole or not is_same_place(x, out) or product.grid[1:] != (1, 1):
        return None
    if is_same_place(x, normed):
        return None
    tail = counter, weight, normed, rounded, epsilon, np.int32(norm.block), planes
    arguments = product.arguments
    return replace(
        product,
        arguments=(*arguments[:first], *tail, *arguments[first + len(tail) :]),
        writes=product.writes | {first, first + 2, first + 3},
    )
