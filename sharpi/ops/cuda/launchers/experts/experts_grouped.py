"""Launches the expert kernels for many tokens, which share each read of an expert's weights.

Results are bit-identical to those of the kernels in `experts`. With `Groups.in_tiles`, tensor cores
multiply tiles of 64 rows and 32 items, if the activations are quantised to one plane. Activations
in f16 (`F16Rows`) go to other tiles, whose results have other bits.
"""

from typing import Final, NamedTuple

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.experts import (
    TILE_ROWS,
    GpuStackedMatrix,
    RoutedSum,
    gate_up_threads,
)
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.matvec_layout import (
    BLOCK,
    bits,
    kernel,
    lanes_of_row,
    reads_floats,
    rows_at_once,
)
from sharpi.ops.interface import Activation

ROWS_OF_TILE: Final = 64  # kTileRows
TILED_ITEMS: Final = 6  # mean tokens per expert; an estimate that no GPU has confirmed
_LEAST_BLOCKS_OF_ROWS: Final = 16
_F16_TYPES: Final = frozenset({QuantType.F16, QuantType.BF16})
_COLUMNS_OF_PIECE: Final = 8  # of 16 bytes, at multiples of which rows must begin


class Groups(NamedTuple):
    """The items of some experts, grouped by expert (see `group_routes`)."""

    offsets: Span
    items: Span | None  # None if the rows of x are in the order of items
    experts: int
    used: int  # item i reads row i / used of x
    is_packed: bool = False  # the rows of results are in the order of items
    in_tiles: bool = False


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


class _Form(NamedTuple):
    """The kernel of an operation, with what its form of tiles decides."""

    kernel: Kernel
    shares: int
    planes: tuple[int, ...]  # an argument that tiles do not take
    lane_bits: tuple[int, ...]  # an argument that f16 tiles do not take
    lanes: int | None  # None in tiles


def _form(
    operation: str, x: Span | F16Rows, groups: Groups, stacked: GpuStackedMatrix, planes: int
) -> _Form:
    kind, lanes = stacked.quant_type, lanes_of_row(stacked.quant_type, stacked.columns)
    if isinstance(x, F16Rows):  # its file is compiled for both types together
        name = f"experts_f16_{operation}"
        f16 = Kernel(name, f"{name}_{kind.name.lower()}")
        return _Form(f16, shares(groups.experts), (), (), None)
    if groups.in_tiles and supports_tiles(kind, planes):
        tiled = kernel(f"experts_tiled_{operation}", kind, planes)
        return _Form(tiled, shares(groups.experts), (), (bits(lanes),), None)
    grouped = kernel(f"experts_grouped_{operation}", kind, planes)
    return _Form(grouped, 1, (stacked.planes(planes),), (bits(lanes),), lanes)


def gate_up(
    x: Span | F16Rows,
    groups: Groups,
    gate: GpuStackedMatrix,
    up: GpuStackedMatrix,
    hidden: Span,
    *,
    activation: Activation,
    planes: int,
    hidden_planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes `experts.gate_up` for many tokens; for x in f16, columns are a multiple of 8."""
    form = _form("gate_up", x, groups, up, planes)
    return Launch.of(
        form.kernel,
        (-(-up.rows // TILE_ROWS), groups.experts, form.shares),
        BLOCK if form.lanes is None else gate_up_threads(form.lanes),
        (
            *(x, groups.offsets, groups.items, gate.arguments, up.arguments, input_weights),
            *(hidden, groups.used, up.columns, up.rows, form.planes, hidden_planes, activation),
            *(form.lane_bits, groups.is_packed),
        ),
        [hidden],
        referenced=gate.referenced + up.referenced,
    )


def product(
    x: Span | F16Rows,
    groups: Groups,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    planes: int,
    input_weights: Span | None = None,
) -> Launch:
    """Computes `experts.product` for many tokens; for x in f16, columns are a multiple of 8."""
    s, form = stacked, _form("product", x, groups, stacked, planes)
    rows = ROWS_OF_TILE if form.lanes is None else BLOCK // form.lanes * rows_at_once(s.quant_type)
    return Launch.of(
        form.kernel,
        (-(-s.rows // rows), groups.experts, form.shares),
        BLOCK,
        (
            *(x, groups.offsets, groups.items, s.arguments, input_weights, out, groups.used),
            *(s.columns, s.rows, form.planes, form.lane_bits, groups.is_packed),
        ),
        [out],
        referenced=s.referenced,
    )


def down(
    hidden: Span | F16Rows,
    groups: Groups,
    stacked: GpuStackedMatrix,
    out: Span,
    *,
    planes: int,
) -> Launch:
    """Computes out (T * used, rows) = down h + bias of each item, which `merge` sums.

    `hidden` has a row for each item. If the groups are packed, its rows and those of `out` are in
    the order of items.
    """
    listed = None if groups.is_packed else groups.items
    each = groups._replace(items=listed, used=1, is_packed=False)
    return product(hidden, each, stacked, out, planes=planes)


def merge(values: Span, total: RoutedSum) -> Launch:
    """Computes the sum `total` of `values` (T * used, rows), the results of `down`."""
    t, items = total, total.items
    return Launch.of(
        "experts_grouped_merge",
        (items.tokens, -(-t.rows // BLOCK)),
        BLOCK,
        (values, items.ids, t.weights, t.residual, t.out, t.scale, items.used, t.rows),
        [t.out],
    )
