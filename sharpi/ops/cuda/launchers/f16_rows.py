"""Launches the kernels that convert rows of floats to f16 for matmuls, and back."""

from typing import Final, NamedTuple

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.matvec_layout import whole_warps

_THREADS: Final = 256


class F16Rows(NamedTuple):
    """Floats (n, width) as f16: row i of `rows` times scales[i]."""

    rows: Span
    scales: Span


def to_f16(x: Span, out: F16Rows, *, tokens: int, width: int) -> Launch:
    """Computes `out` such that its rows times their scales are x (T, width).

    The f16 values are within -1..1. Scales are powers of two, so that only the rounding to f16
    loses bits.
    """
    kernel, block = Kernel("f16_rows", "to_f16"), whole_warps(width, _THREADS)
    return Launch.of(kernel, (tokens,), block, (x, out, width), out)


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
    kernel, block = Kernel("f16_rows", "items_to_f16"), whole_warps(width, _THREADS)
    return Launch.of(kernel, (num_items,), block, (x, offsets, items, out, experts, width), out)


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
    return Launch.of(
        Kernel("f16_rows", "from_f16"),
        (tokens, -(-width // _THREADS)),
        _THREADS,
        (y, scales, bias, residual, out, width, factor, scale),
        [out],
    )
