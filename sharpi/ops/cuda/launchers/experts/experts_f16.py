"""Launches the kernels that multiply F16 and BF16 experts by activations in f16, in tiles.

BF16 weights are converted to f16 on the way. An item's sums have the same bits whatever the other
items are, but not those of the kernels in `experts`.
"""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.experts import TILE_ROWS, GpuStackedMatrix
from sharpi.ops.cuda.launchers.experts.tiles import ROWS_OF_TILE, shares
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.matvec_layout import BLOCK
from sharpi.ops.interface import Activation


def gate_up(
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
        _kernel("experts_f16_gate_up", quant_type),
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


def product(
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
        _kernel("experts_f16_product", quant_type),
        grid=(-(-rows // ROWS_OF_TILE), experts, shares(experts)),
        block=BLOCK,
        arguments=(
            *(*x, offsets, items, stacked.addresses, stacked.bias, stacked.factors),
            *(input_weights, out, *map(np.int32, (used, columns, rows, is_packed))),
        ),
        writes=frozenset({8}),
        referenced=stacked.referenced,
    )


def _kernel(operation: str, quant_type: QuantType) -> Kernel:
    """Returns an operation's kernel for a type; both types are compiled together."""
    return Kernel(operation, f"{operation}_{quant_type.name.lower()}")
