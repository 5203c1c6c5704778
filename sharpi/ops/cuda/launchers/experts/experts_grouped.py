"""Launches the expert kernels for many tokens, which share each read of an expert's weights.

Results are bit-identical to those of the kernels in `experts`. `offsets` and `items` come from
`group_routes`. With `in_tiles`, tensor cores multiply tiles of 64 rows and 32 items, if the
activations are quantised to one plane. Activations in f16 (`F16Rows`) go to the kernels of
`experts_f16`, whose results have other bits.
"""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.experts import (
    TILE_ROWS,
    GpuStackedMatrix,
    gate_up_threads,
    kernel,
)
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.matvec_layout import BLOCK, bits, lanes_of_row, reads_floats, rows_at_once
from sharpi.ops.interface import Activation

ROWS_OF_TILE: Final = 64  # kTileRows
TILED_ITEMS: Final = 6  # mean tokens per expert; an estimate that no GPU has confirmed
_LEAST_BLOCKS_OF_ROWS: Final = 16
_F16_TYPES: Final = frozenset({QuantType.F16, QuantType.BF16})
_COLUMNS_OF_PIECE: Final = 8  # of 16 bytes, at multiples of which rows must begin


def fills_tiles(tokens: int, used: int, experts: int) -> bool:
    """Returns True if tokens with `used` experts each give an expert enough items on average."""
    return tokens * used >= TILED_ITEMS * experts


def supports_tiles(quant_type: QuantType, planes: int) -> bool:
    """Returns True if tensor cores can multiply this type with activations of so many planes."""
    return planes == 1 and not reads_floats(quant_type, planes)


def supports_f16_tiles(quant_type: QuantType, planes: int, columns: int) -> bool:
    """Returns True if tensor cores can multiply matrices of this type with activations in f16.

    `planes` are those of quantised activations, 0 for floats (`--precision f32`). Rows of another
    number of columns than a multiple of 8 do not begin at multiples of 16 bytes.
    """
    return planes > 0 and quant_type in _F16_TYPES and columns % _COLUMNS_OF_PIECE == 0


def shares(experts: int) -> int:
    """Returns how many blocks share an expert's tiles: more blocks if there are few experts."""
    return max(1, _LEAST_BLOCKS_OF_ROWS // experts)


def f16_gate_up(
    x: F16Rows,
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
    hidden_planes: int,
    input_weights: Span | None = None,
    is_packed: bool = False,
) -> Launch:
    """Computes what `experts_grouped.gate_up` does, in f16; columns are a multiple of 8."""
    return Launch(
        _f16_kernel("experts_f16_gate_up", quant_type),
        grid=(-(-rows // TILE_ROWS), experts, shares(experts)),
        block=BLOCK,
        arguments=(
            *(*x, offsets, items, gate.addresses, gate.bias, gate.factors),
            *(up.addresses, up.bias, up.factors, input_weights, hidden),
            *map(np.int32, (used, columns, rows, hidden_planes, activation, is_packed)),
        ),
        writes=frozenset({11}),
        referenced=gate.referenced + up.referenced,
    )


def f16_product(
    x: F16Rows,
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
    input_weights: Span | None = None,
    is_packed: bool = False,
) -> Launch:
    """Computes what `experts_grouped.product` does, in f16; columns are a multiple of 8."""
    return Launch(
        _f16_kernel("experts_f16_product", quant_type),
        grid=(-(-rows // ROWS_OF_TILE), experts, shares(experts)),
        block=BLOCK,
        arguments=(
            *(*x, offsets, items, stacked.addresses, stacked.bias, stacked.factors),
            *(input_weights, out, *map(np.int32, (used, columns, rows, is_packed))),
        ),
        writes=frozenset({8}),
        referenced=stacked.referenced,
    )


def _f16_kernel(operation: str, quant_type: QuantType) -> Kernel:
    """Returns an operation's kernel for a type; both types are compiled together."""
    return Kernel(operation, f"{operation}_{quant_type.name.lower()}")


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
        return f16_gate_up(
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
        return f16_product(
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
