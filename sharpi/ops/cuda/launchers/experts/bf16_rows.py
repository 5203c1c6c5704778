"""Launches the kernels that convert inputs and results of torch's grouped GEMM, which uses bf16.

`offsets` (experts + 1,) and `items` come from `pack_routes`. Rows are in the order of `items`.
"""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.matvec_layout import units_of_row
from sharpi.ops.interface import Activation

_THREADS: Final = 256


def dequantise_experts(
    stacked: GpuStackedMatrix,
    offsets: Span,
    out: Span,
    *,
    quant_type: QuantType,
    experts: int,
    rows: int,
    columns: int,
) -> Launch:
    """Dequantises the matrices of experts with routed tokens to bf16 (experts, rows, columns)."""
    name = quant_type.name.lower()
    return Launch(
        Kernel("dequantise_experts", f"dequantise_experts_{name}", name),
        grid=(-(-rows * units_of_row(quant_type, columns) // _THREADS), experts, 1),
        block=_THREADS,
        arguments=(
            *(stacked.addresses, stacked.factors, offsets, out),
            *(np.int32(rows), np.int32(columns)),
        ),
        writes=frozenset({3}),
        referenced=stacked.referenced,
    )


def items_to_bf16(
    x: Span,
    offsets: Span,
    items: Span,
    weights: Span | None,
    out: Span,
    *,
    experts: int,
    num_items: int,
    used: int,
    width: int,
) -> Launch:
    """Copies the rows of x (T, width) that items read to out, bf16 (num_items, width).

    `weights` (T * used,) multiply them.
    """
    return Launch(
        Kernel("bf16_rows", "items_to_bf16"),
        grid=(num_items, -(-width // _THREADS), 1),
        block=_THREADS,
        arguments=(
            *(x, offsets, items, weights, out),
            *(np.int32(experts), np.int32(used), np.int32(width)),
        ),
        writes=frozenset({4}),
    )


def activate(
    gate: Span,
    up: Span | None,
    offsets: Span,
    *,
    activation: Activation,
    experts: int,
    num_items: int,
    width: int,
) -> Launch:
    """Replaces gate, bf16 (num_items, width), by act(gate) * up, or by act(gate) without `up`."""
    return Launch(
        Kernel("bf16_rows", "activate_bf16"),
        grid=(num_items, -(-width // _THREADS), 1),
        block=_THREADS,
        arguments=(gate, up, offsets, np.int32(experts), np.int32(width), np.int32(activation)),
        writes=frozenset({0}),
    )


def from_bf16(
    x: Span, offsets: Span, out: Span, *, experts: int, num_items: int, width: int
) -> Launch:
    """Converts x, bf16 (num_items, width), to floats."""
    return Launch(
        Kernel("bf16_rows", "from_bf16"),
        grid=(num_items, -(-width // _THREADS), 1),
        block=_THREADS,
        arguments=(x, offsets, out, np.int32(experts), np.int32(width)),
        writes=frozenset({2}),
    )
