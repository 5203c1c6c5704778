"""Launches the expert kernels for few tokens, with separate blocks for each item.

Item t * used + r is token t with the r-th expert of its route. `ids` are (T, used) int32; without
them, expert 0 computes all tokens and `used` is 1. Activations are quantised rows (see `quantise`)
if `planes` > 0 and the weights are quantised; otherwise they are floats.
"""

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import (
    Argument,
    Kernel,
    Launch,
    Span,
    argument_indices,
    flat,
    is_same_address,
    named,
)
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.elementwise import QuantiseArguments
from sharpi.ops.cuda.launchers.rms_norm import NO_NORM, NormTail, norm_tail, with_tail
from sharpi.ops.cuda.matvec_layout import (
    BLOCK,
    bits,
    block_threads,
    entry,
    lanes_of_row,
    rows_at_once,
)
from sharpi.ops.interface import Activation

TILE_ROWS = 32  # rows that are quantised together in a block
_MAX_PARTIALS = 2048  # kMaxPartials
_MOSTLY_BUSY = 0.9


class DownArguments(NamedTuple):
    """The arguments of experts_down.cu."""

    hidden: Argument
    ids: Argument
    weights: Argument
    addresses: Argument
    bias: Argument
    factors: Argument
    residual: Argument
    out: Argument
    scale: Argument
    used: Argument
    columns: Argument
    rows: Argument
    planes: Argument
    tile_bits: Argument
    lane_bits: Argument
    norm: NormTail = NO_NORM


class GateUpArguments(NamedTuple):
    """The arguments of experts_gate_up.cu."""

    x: Argument
    ids: Argument
    gate: Argument
    gate_bias: Argument
    gate_factors: Argument
    up: Argument
    up_bias: Argument
    up_factors: Argument
    weights: Argument
    hidden: Argument
    used: Argument
    columns: Argument
    rows: Argument
    planes: Argument
    hidden_planes: Argument
    activation: Argument
    lane_bits: Argument


class ProductArguments(NamedTuple):
    """The arguments of experts_product.cu."""

    x: Argument
    ids: Argument
    addresses: Argument
    bias: Argument
    factors: Argument
    weights: Argument
    out: Argument
    used: Argument
    columns: Argument
    rows: Argument
    planes: Argument
    lane_bits: Argument
    quantised: Argument = None
    quantised_planes: Argument = np.int32(0)


class GpuStackedMatrix(Struct, frozen=True):
    """Matrices of equal shape that kernels find by their addresses."""

    addresses: Span  # (experts,) uint64
    bias: Span | None  # (experts, rows) float32
    referenced: tuple[Span, ...]  # all memory to which the addresses may point
    factors: Span | None = None  # (experts,) float32, applied to the dequantised blocks

    def some(self, first: int, count: int, num_experts: int) -> "GpuStackedMatrix":
        """Returns `count` of the `num_experts` matrices, starting at `first`."""
        if count == num_experts:
            return self
        spans = (self.addresses, self.bias, self.factors)
        addresses, bias, factors = (_share(span, first, count, num_experts) for span in spans)
        assert addresses is not None
        return GpuStackedMatrix(addresses, bias, self.referenced, factors)


def _share(span: Span | None, first: int, count: int, whole: int) -> Span | None:
    """Returns the part of an array that `count` experts from `first` on have; None for None."""
    if span is None:
        return None
    share = span.num_bytes // whole
    return span.part(first * share, count * share)


def gate_up(
    x: Span,
    ids: Span | None,
    gate: GpuStackedMatrix,
    up: GpuStackedMatrix,
    hidden: Span,
    *,
    quant_type: QuantType,
    activation: Activation,
    tokens: int,
    used: int,
    columns: int,
    rows: int,
    planes: int,
    hidden_planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes hidden (T * used, rows) = act(gate x + bias) * (up x + bias).

    gate and up have the same quant type. With `hidden_planes` > 0 the result is quantised to that
    many planes, and rows are a multiple of 32; otherwise it is floats. `input_weights` (T, used)
    multiply x.
    """
    lanes = lanes_of_row(quant_type, columns)
    return Launch(
        kernel("experts_gate_up", quant_type, planes),
        grid=(-(-rows // TILE_ROWS), tokens * used, 1),
        block=gate_up_threads(lanes),
        arguments=GateUpArguments(
            *(x, ids, gate.addresses, gate.bias, gate.factors, up.addresses, up.bias, up.factors),
            *(input_weights, hidden),
            *(np.int32(used), np.int32(columns), np.int32(rows), np.int32(planes)),
            *(np.int32(hidden_planes), np.int32(activation), np.int32(bits(lanes))),
        ),
        writes=argument_indices(GateUpArguments, "hidden"),
        referenced=gate.referenced + up.referenced,
    )


def product(
    x: Span,
    ids: Span | None,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    quant_type: QuantType,
    tokens: int,
    used: int,
    columns: int,
    rows: int,
    planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes out (T * used, rows) = W x + bias with the matrix of each item's expert."""
    lanes = lanes_of_row(quant_type, columns)
    rows_of_block = BLOCK // lanes * rows_at_once(quant_type)
    threads = block_threads(rows * tokens * used, rows_of_block)
    return Launch(
        kernel("experts_product", quant_type, planes),
        grid=(-(-rows // (rows_of_block * threads // BLOCK)), tokens * used, 1),
        block=threads,
        arguments=ProductArguments(
            *(x, ids, stacked.addresses, stacked.bias, stacked.factors, input_weights, out),
            *(np.int32(used), np.int32(columns), np.int32(rows), np.int32(planes)),
            np.int32(bits(lanes)),
        ),
        writes=argument_indices(ProductArguments, "out"),
        referenced=stacked.referenced,
    )


def product_with_quantise(product: Launch, quantise: Launch) -> Launch | None:
    """Returns one launch for `product` and the quantising of all its results as one row.

    Returns None if `quantise` reads something else, or if the rows of a block are not whole blocks
    of 32.
    """
    given = ProductArguments(*product.arguments)
    following = QuantiseArguments(*quantise.arguments)
    blocks, items, _ = product.grid
    rows = blocks * _rows_of_block(product)  # with those behind the end of a matrix
    is_whole = rows == given.rows and _rows_of_block(product) % TILE_ROWS == 0
    is_one_row = quantise.grid[0] == 1 and following.columns == np.int32(items * rows)
    if not (is_whole and is_one_row and is_same_address(given.out, following.x)):
        return None
    return replace(
        product,
        arguments=given._replace(quantised=following.quantised, quantised_planes=following.planes),
        writes=product.writes | argument_indices(ProductArguments, "quantised"),
    )


def _rows_of_block(product: Launch) -> int:
    quant_type, lane_bits = (
        product.kernel.quant_type,
        ProductArguments(*product.arguments).lane_bits,
    )
    assert quant_type is not None
    assert isinstance(lane_bits, np.int32)
    return (product.block >> int(lane_bits)) * rows_at_once(QuantType[quant_type.upper()])


def activate(
    gate: Span,
    up: Span | None,
    hidden: Span,
    *,
    activation: Activation,
    items: int,
    rows: int,
    hidden_planes: int,
) -> Launch:
    """Computes hidden (items, rows) = act(gate) * up, or act(gate) if `up` is None.

    gate and up are results of `product`. The result is quantised as in `gate_up`.
    """
    return Launch(
        Kernel("experts_activate", "experts_activate"),
        grid=(items, -(-rows // BLOCK), 1),
        block=BLOCK,
        arguments=(
            *(gate, up, hidden),
            *(np.int32(rows), np.int32(hidden_planes), np.int32(activation)),
        ),
        writes=frozenset({2}),
    )


def down(
    hidden: Span,
    ids: Span | None,
    weights: Span | None,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    quant_type: QuantType,
    tokens: int,
    used: int,
    columns: int,
    rows: int,
    planes: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Computes out (T, rows) = residual + scale * sum of weight * (down h + bias).

    The sum is in ascending order of expert id. `weights` are (T, used), None for 1. `used` is at
    most 32.
    """
    lanes = lanes_of_row(quant_type, columns)
    tile = _down_rows(BLOCK // lanes, used, rows_at_once(quant_type))
    return Launch(
        kernel("experts_down", quant_type, planes),
        grid=(-(-rows // tile), tokens, 1),
        block=BLOCK,
        arguments=flat(
            DownArguments(
                *(hidden, ids, weights, stacked.addresses, stacked.bias, stacked.factors),
                *(residual, out, np.float32(scale), np.int32(used), np.int32(columns)),
                *(np.int32(rows), np.int32(planes), np.int32(bits(tile)), np.int32(bits(lanes))),
            )
        ),
        writes=argument_indices(DownArguments, "out"),
        referenced=stacked.referenced,
    )


def down_with_norm(product: Launch, norm: Launch, counter: Span) -> Launch | None:
    """Returns one launch that replaces `product`, a launch of `down`, and the norm of its result.

    Returns None if `norm` is not the norm of this result, if a norm is already folded in, or if
    there are several tokens. `counter` is an int32 with the value 0.
    """
    given = named(DownArguments, product.arguments)
    tail = norm_tail(norm, given.out, given.rows, counter)
    if tail is None or given.norm != NO_NORM or product.grid[1] != 1:
        return None
    return with_tail(product, given, tail)


def kernel(operation: str, quant_type: QuantType, planes: int) -> Kernel:
    """Returns the kernel of an operation for a quant type and activations of `planes` planes."""
    return Kernel(operation, entry(operation, quant_type, planes), quant_type.name.lower())


def gate_up_threads(lanes: int) -> int:
    """Returns the threads of a block: `lanes` for each row of a tile, at most BLOCK."""
    return min(BLOCK, TILE_ROWS * lanes)


def _down_rows(groups: int, used: int, rows_of_group: int) -> int:
    """Returns the number of rows per block: the fewest that keep nearly all thread groups busy."""
    busy: dict[int, float] = {}
    tile = rows_of_group
    while tile <= BLOCK and tile * used <= _MAX_PARTIALS:
        steps = tile // rows_of_group * used
        busy[tile] = steps / (-(-steps // groups) * groups)
        tile *= 2
    enough = min(_MOSTLY_BUSY, max(busy.values()))
    return next(rows for rows, share in busy.items() if share >= enough)
