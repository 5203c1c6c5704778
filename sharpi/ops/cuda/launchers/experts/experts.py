"""Launches the expert kernels for few tokens, with separate blocks for each item.

Activations are quantised rows (see `quantise`) if `planes` > 0 and the weights are quantised;
otherwise they are floats.
"""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Launch, Span, is_same_address, named
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.elementwise import QuantiseArguments
from sharpi.ops.cuda.launchers.rms_norm import NO_NORM, NormTail, with_tail
from sharpi.ops.cuda.matvec_layout import (
    BLOCK,
    bits,
    block_threads,
    kernel,
    lanes_of_row,
    reads_floats,
    rows_at_once,
)
from sharpi.ops.interface import Activation

TILE_ROWS = 32  # rows that are quantised together in a block
_MAX_PARTIALS = 2048  # kMaxPartials
_MOSTLY_BUSY = 0.9


class MatrixArguments(NamedTuple):
    """The arguments of a stacked matrix."""

    addresses: Span
    bias: Span | None
    factors: Span | None


class DownArguments(NamedTuple):
    """The arguments of experts_down.cu."""

    hidden: Span
    ids: Span | None
    weights: Span | None
    matrix: MatrixArguments
    residual: Span | None
    out: Span
    scale: float
    used: int
    columns: int
    rows: int
    planes: int
    tile_bits: int
    lane_bits: int
    norm: NormTail = NO_NORM


class GateUpArguments(NamedTuple):
    """The arguments of experts_gate_up.cu."""

    x: Span
    ids: Span | None
    gate: MatrixArguments
    up: MatrixArguments
    weights: Span | None
    hidden: Span
    used: int
    columns: int
    rows: int
    planes: int
    hidden_planes: int
    activation: int
    lane_bits: int


class ProductArguments(NamedTuple):
    """The arguments of experts_product.cu."""

    x: Span
    ids: Span | None
    matrix: MatrixArguments
    weights: Span | None
    out: Span
    used: int
    columns: int
    rows: int
    planes: int
    lane_bits: int
    quantised: Span | None = None
    quantised_planes: int = 0


class GpuStackedMatrix(Struct, frozen=True):
    """Matrices (rows, columns) of experts, which kernels find by their addresses."""

    quant_type: QuantType
    rows: int
    columns: int
    addresses: Span  # (experts,) uint64
    bias: Span | None  # (experts, rows) float32
    referenced: tuple[Span, ...]  # all memory to which the addresses may point
    factors: Span | None = None  # (experts,) float32, applied to the dequantised blocks

    def some(self, first: int, count: int, num_experts: int) -> "GpuStackedMatrix":
        """Returns `count` of the `num_experts` matrices, starting at `first`."""
        if count == num_experts:
            return self
        names = ("addresses", "bias", "factors")
        spans = {name: getattr(self, name) for name in names}
        parts = {name: _share(span, first, count, num_experts) for name, span in spans.items()}
        return replace(self, **parts)

    @property
    def arguments(self) -> MatrixArguments:
        """The arguments by which a kernel finds and scales a matrix."""
        return MatrixArguments(self.addresses, self.bias, self.factors)

    def planes(self, planes: int) -> int:
        """Returns the planes of activations that the kernels read; 0 if they read floats."""
        return 0 if reads_floats(self.quant_type, planes) else planes


def _share(span: Span | None, first: int, count: int, whole: int) -> Span | None:
    """Returns the part of an array that `count` experts from `first` on have; None for None."""
    if span is None:
        return None
    share = span.num_bytes // whole
    return span.part(first * share, count * share)


class Items(NamedTuple):
    """The items of some tokens: item t * used + r is token t with the r-th expert of its route."""

    ids: Span | None  # (T, used) int32; None if expert 0 computes all tokens, and `used` is 1
    tokens: int
    used: int = 1


class RoutedSum(NamedTuple):
    """out (T, rows) = residual + scale * sum of weight * value of each token's items.

    The sum is in ascending order of expert id.
    """

    items: Items
    rows: int
    out: Span
    weights: Span | None = None  # (T, used), None for 1
    residual: Span | None = None
    scale: float = 1.0


def gate_up(
    x: Span,
    items: Items,
    gate: GpuStackedMatrix,
    up: GpuStackedMatrix,
    hidden: Span,
    *,
    activation: Activation,
    planes: int,
    hidden_planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes hidden (T * used, rows) = act(gate x + bias) * (up x + bias).

    gate and up have the same quant type. With `hidden_planes` > 0 the result is quantised to that
    many planes, and rows are a multiple of 32; otherwise it is floats. `input_weights` (T, used)
    multiply x.
    """
    lanes = lanes_of_row(up.quant_type, up.columns)
    return Launch.of(
        kernel("experts_gate_up", up.quant_type, planes),
        (-(-up.rows // TILE_ROWS), items.tokens * items.used),
        gate_up_threads(lanes),
        GateUpArguments(
            *(x, items.ids, gate.arguments, up.arguments, input_weights, hidden, items.used),
            *(up.columns, up.rows, up.planes(planes), hidden_planes, activation, bits(lanes)),
        ),
        [hidden],
        referenced=gate.referenced + up.referenced,
    )


def product(
    x: Span,
    items: Items,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes out (T * used, rows) = W x + bias with the matrix of each item's expert."""
    s, count = stacked, items.tokens * items.used
    lanes = lanes_of_row(s.quant_type, s.columns)
    rows_of_block = BLOCK // lanes * rows_at_once(s.quant_type)
    threads = block_threads(s.rows * count, rows_of_block)
    return Launch.of(
        kernel("experts_product", s.quant_type, planes),
        (-(-s.rows // (rows_of_block * threads // BLOCK)), count),
        threads,
        ProductArguments(
            *(x, items.ids, s.arguments, input_weights, out, items.used, s.columns, s.rows),
            *(s.planes(planes), bits(lanes)),
        ),
        [out],
        referenced=s.referenced,
    )


def product_with_quantise(product: Launch, quantise: Launch) -> Launch | None:
    """Returns one launch for `product` and the quantising of all its results as one row.

    Returns None if `quantise` reads something else, or if the rows of a block are not whole blocks
    of 32.
    """
    given = named(ProductArguments, product.arguments)
    following = named(QuantiseArguments, quantise.arguments)
    (blocks, items, _), of_block = product.grid, _rows_of_block(product, given)
    rows = blocks * of_block  # with those behind the end of a matrix
    is_whole = rows == given.rows and of_block % TILE_ROWS == 0
    is_one_row = quantise.grid[0] == 1 and following.columns == items * rows
    if not (is_whole and is_one_row and is_same_address(given.out, following.x)):
        return None
    both = given._replace(quantised=following.quantised, quantised_planes=following.planes)
    return product.extended(both, both.quantised)


def _rows_of_block(product: Launch, given: ProductArguments) -> int:
    quant_type = product.kernel.quant_type
    assert quant_type is not None
    return (product.block >> given.lane_bits) * rows_at_once(QuantType[quant_type.upper()])


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
    arguments = (gate, up, hidden, rows, hidden_planes, activation)
    return Launch.of("experts_activate", (items, -(-rows // BLOCK)), BLOCK, arguments, [hidden])


def down(hidden: Span, stacked: GpuStackedMatrix, total: RoutedSum, *, planes: int) -> Launch:
    """Computes the sum `total`, whose values are down h + bias; at most 32 experts are used."""
    s, t, (ids, tokens, used) = stacked, total, total.items
    lanes = lanes_of_row(s.quant_type, s.columns)
    tile = _down_rows(BLOCK // lanes, used, rows_at_once(s.quant_type))
    return Launch.of(
        kernel("experts_down", s.quant_type, planes),
        (-(-s.rows // tile), tokens),
        BLOCK,
        DownArguments(
            *(hidden, ids, t.weights, s.arguments, t.residual, t.out, t.scale, used),
            *(s.columns, s.rows, s.planes(planes), bits(tile), bits(lanes)),
        ),
        [t.out],
        referenced=s.referenced,
    )


def down_with_norm(product: Launch, norm: Launch, counter: Span) -> Launch | None:
    """Returns one launch that replaces `product`, a launch of `down`, and the norm of its result.

    Returns None if `norm` is not the norm of this result, if a norm is already folded in, or if
    there are several tokens. `counter` is an int32 with the value 0.
    """
    given = named(DownArguments, product.arguments)
    if given.norm != NO_NORM or product.grid[1] != 1:
        return None
    return with_tail(product, given, (given.out, given.rows), norm, counter)


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
