"""Starts of a feed-forward's halves for many tokens: those that share an expert read it together.

Every value has the bits that `experts` gives it. `offsets`, `items`: of `group_routes`.
"""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import TILE_ROWS, GpuStackedMatrix, gate_up_threads, kernel
from sharpi.ops.cuda.matvec_layout import BLOCK, bits, lanes_of_row, rows_at_once
from sharpi.ops.interface import Activation


def gate_up(
    x: Span,
    offsets: Span,
    items: Span,
    gate: GpuStackedMatrix,
    up: GpuStackedMatrix,
    hidden: Span,
    *,
    quant_type: QuantType,
    activation: Activation,
    experts: int,
    used: int,
    columns: int,
    rows: int,
    planes: int,
    hidden_planes: int,
    input_weights: Span | None = None,
    is_packed: bool = False,
) -> Launch:
    """As `experts.gate_up`; into rows by place in the list where items are packed."""
    lanes = lanes_of_row(quant_type, columns)
    return Launch(
        kernel("experts_grouped_gate_up", quant_type, planes),
        grid=(-(-rows // TILE_ROWS), experts, 1),
        block=gate_up_threads(lanes),
        arguments=(
            *(x, offsets, items, gate.addresses, gate.bias, gate.factors),
            *(up.addresses, up.bias, up.factors),
            *(input_weights, hidden, np.int32(used), np.int32(columns), np.int32(rows)),
            *(
                np.int32(planes),
                np.int32(hidden_planes),
                np.int32(activation),
                np.int32(bits(lanes)),
                np.int32(is_packed),
            ),
        ),
        writes=frozenset({10}),
        reaches=gate.reach + up.reach,
    )


def product(
    x: Span,
    offsets: Span,
    items: Span | None,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    quant_type: QuantType,
    experts: int,
    used: int,
    columns: int,
    rows: int,
    planes: int,
    input_weights: Span | None = None,
    is_packed: bool = False,
) -> Launch:
    """As `experts.product`: x has a row for each `used` items; for `is_packed` see `gate_up`."""
    lanes = lanes_of_row(quant_type, columns)
    return Launch(
        kernel("experts_grouped_product", quant_type, planes),
        grid=(-(-rows // (BLOCK // lanes * rows_at_once(quant_type))), experts, 1),
        block=BLOCK,
        arguments=(
            *(
                x,
                offsets,
                items,
                stacked.addresses,
                stacked.bias,
                stacked.factors,
                input_weights,
                out,
            ),
            *(np.int32(used), np.int32(columns), np.int32(rows)),
            *(np.int32(planes), np.int32(bits(lanes)), np.int32(is_packed)),
        ),
        writes=frozenset({7}),
        reaches=stacked.reach,
    )


def down(
    hidden: Span,
    offsets: Span,
    items: Span | None,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    quant_type: QuantType,
    experts: int,
    columns: int,
    rows: int,
    planes: int,
) -> Launch:
    """out (T * used, rows) = down h + bias of each item; `merge` sums them.

    Without `items` these are rows of packed ones.
    """
    return product(
        *(hidden, offsets, items, stacked, out),
        quant_type=quant_type,
        experts=experts,
        used=1,
        columns=columns,
        rows=rows,
        planes=planes,
    )


def merge(
    values: Span,
    ids: Span | None,
    weights: Span | None,
    out: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """out (T, rows) = residual + scale * sum of weight * value, as `experts.down`."""
    return Launch(
        Kernel("experts_grouped_merge", "experts_grouped_merge"),
        grid=(tokens, -(-rows // BLOCK), 1),
        block=BLOCK,
        arguments=(
            *(values, ids, weights, residual, out),
            *(np.float32(scale), np.int32(used), np.int32(rows)),
        ),
        writes=frozenset({4}),
    )
