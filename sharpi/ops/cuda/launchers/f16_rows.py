"""Launches the kernels that convert rows of floats to f16 for matmuls, and back."""

from typing import Final, NamedTuple

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.matvec_layout import whole_warps

_THREADS: Final = 256


class F16Rows(NamedTuple):
    """Floats (n, width) as f16: row i of `rows` times scales[i]."""

    rows: Span
    scales: Span


def to_f16(x: Span, out: Span, scales: Span, *, tokens: int, width: int) -> Launch:
    """Computes out f16 (T, width) and scales (T,) such that out * scales = x (T, width).

    Values in `out` are within -1..1. Scales are powers of two, so that only the rounding to f16
    loses bits.
    """
    return Launch(
        Kernel("f16_rows", "to_f16"),
        grid=(tokens, 1, 1),
        block=whole_warps(width, _THREADS),
        arguments=(x, out, scales, np.int32(width)),
        writes=frozenset({1, 2}),
    )


def items_to_f16(
    x: Span,
    offsets: Span,
    items: Span | None,
    out: F16Rows,
    *,
    experts: int,
    num_items: int,
    width: int,
) -> Launch:
    """Converts the rows of x that belong to items of `experts` adjacent experts, like `to_f16`.

    x and `out` have a row for each of at most `num_items` items. `offsets` and `items` are those of
    `group_routes`, from the first of these experts on; without `items`, rows are packed.
    """
    return Launch(
        Kernel("f16_rows", "items_to_f16"),
        grid=(num_items, 1, 1),
        block=whole_warps(width, _THREADS),
        arguments=(x, offsets, items, *out, np.int32(experts), np.int32(width)),
        writes=frozenset({3, 4}),
    )


def from_f16(
    y: Span,
    scales: Span,
    bias: Span | None,
    residual: Span | None,
    out: Span,
    *,
    tokens: int,
    width: int,
    scale: float,
    factor: float = 1.0,
) -> Launch:
    """Computes out = residual + scale * (factor * y * scales + bias).

    out, residual and y (f16) are (T, width), bias is (width,), scales (T,) are those of `to_f16`.
    `out` may be the residual.
    """
    return Launch(
        Kernel("f16_rows", "from_f16"),
        grid=(tokens, -(-width // _THREADS), 1),
        block=_THREADS,
        arguments=(
            *(y, scales, bias, residual, out),
            *(np.int32(width), np.float32(factor), np.float32(scale)),
        ),
        writes=frozenset({4} | ({3} if residual == out else set())),
    )
