"""Launches the expert kernels for many tokens, which share each read of an expert's weights.

Results are bit-identical to those of the kernels in `experts`. `offsets` and `items` come from
`group_routes`. With `in_tiles`, tensor cores multiply tiles of 64 rows and 32 items, if the
activations are quantised to one plane. Activations in f16 (`F16Rows`) go to the kernels of
`experts_f16`, whose results have other bits.
"""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts_f16
from sharpi.ops.cuda.launchers.experts.experts import (
    TILE_ROWS,
    GpuStackedMatrix,
    gate_up_threads,
    kernel,
)
from sharpi.ops.cuda.launchers.experts.tiles import ROWS_OF_TILE, shares, supports_tiles
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.matvec_layout import BLOCK, bits, lanes_of_row, rows_at_once
from sharpi.ops.interface import Activation


def gate_up(
    x: Span | F16Rows,
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
    in_tiles: bool = False,
) -> Launch:
    """Computes `experts.gate_up` for many tokens.

    With `is_packed`, the result's rows are in the order of `items`.
    """
    if isinstance(x, F16Rows):
        return experts_f16.gate_up(
            *(x, offsets, items, gate, up, hidden),
            quant_type=quant_type,
            activation=activation,
            experts=experts,
            used=used,
            columns=columns,
            rows=rows,
            hidden_planes=hidden_planes,
            input_weights=input_weights,
            is_packed=is_packed,
        )
    lanes = lanes_of_row(quant_type, columns)
    in_tiles = in_tiles and supports_tiles(quant_type, planes)
    operation = "experts_tiled_gate_up" if in_tiles else "experts_grouped_gate_up"
    return Launch(
        kernel(operation, quant_type, planes),
        grid=(-(-rows // TILE_ROWS), experts, shares(experts) if in_tiles else 1),
        block=BLOCK if in_tiles else gate_up_threads(lanes),
        arguments=(
            *(x, offsets, items, gate.addresses, gate.bias, gate.factors),
            *(up.addresses, up.bias, up.factors),
            *(input_weights, hidden, np.int32(used), np.int32(columns), np.int32(rows)),
            *(() if in_tiles else (np.int32(planes),)),
            *map(np.int32, (hidden_planes, activation, bits(lanes), is_packed)),
        ),
        writes=frozenset({10}),
        referenced=gate.referenced + up.referenced,
    )


def product(
    x: Span | F16Rows,
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
    in_tiles: bool = False,
) -> Launch:
    """Computes `experts.product` for many tokens, where item i reads row i / used of x.

    With `is_packed`, the result's rows are in the order of `items`.
    """
    if isinstance(x, F16Rows):
        return experts_f16.product(
            *(x, offsets, items, stacked, out),
            quant_type=quant_type,
            experts=experts,
            used=used,
            columns=columns,
            rows=rows,
            input_weights=input_weights,
            is_packed=is_packed,
        )
    lanes = lanes_of_row(quant_type, columns)
    in_tiles = in_tiles and supports_tiles(quant_type, planes)
    operation = "experts_tiled_product" if in_tiles else "experts_grouped_product"
    rows_of_block = ROWS_OF_TILE if in_tiles else BLOCK // lanes * rows_at_once(quant_type)
    return Launch(
        kernel(operation, quant_type, planes),
        grid=(-(-rows // rows_of_block), experts, shares(experts) if in_tiles else 1),
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
            *(() if in_tiles else (np.int32(planes),)),
            *(np.int32(bits(lanes)), np.int32(is_packed)),
        ),
        writes=frozenset({7}),
        referenced=stacked.referenced,
    )


def down(
    hidden: Span | F16Rows,
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
    in_tiles: bool = False,
) -> Launch:
    """Computes out (T * used, rows) = down h + bias of each item, which `merge` sums.

    Without `items`, the rows of `hidden` and `out` are packed: they are in the order of items.
    """
    return product(
        *(hidden, offsets, items, stacked, out),
        quant_type=quant_type,
        experts=experts,
        used=1,
        columns=columns,
        rows=rows,
        planes=planes,
        in_tiles=in_tiles,
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
    """Computes out (T, rows) = residual + scale * sum of weight * value over each token's items.

    `values` (T * used, rows) are the results of `down`. The order is that of `experts.down`.
    """
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
