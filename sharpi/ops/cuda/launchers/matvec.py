"""Launches the kernels for matrix-vector products of quantised weights."""

from collections.abc import Sequence
from typing import Final, NamedTuple

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
from sharpi.ops.cuda.launchers.experts.route import RouteArguments, RouteTail
from sharpi.ops.cuda.launchers.rms_norm import NO_NORM, NormTail, norm_tail, with_tail
from sharpi.ops.cuda.matvec_layout import (
    BLOCK,
    FLOAT_TYPES,
    MAX_TOKENS,
    bits,
    block_threads,
    entry,
    lanes_of_row,
    rows_of_block,
)

MAX_PARTS = 3
_TILE_ROWS, _TILE_TOKENS = 64, 32
_FLOAT_NAMES = frozenset(each.name.lower() for each in FLOAT_TYPES)


class PartArguments(NamedTuple):
    """The arguments of one matrix; the default is no matrix."""

    weights: Argument = None
    bias: Argument = None
    out: Argument = None
    rows: Argument = np.int32(0)
    factor: Argument = np.float32(0)


NO_PART: Final = PartArguments()


class MatvecArguments(NamedTuple):
    """The arguments of matvec.cu; kernels of other files begin with the same ones, up to `c`."""

    x: Argument
    a: PartArguments
    b: PartArguments
    c: PartArguments
    residual: Argument
    scale: Argument
    tokens: Argument
    columns: Argument
    planes: Argument
    lane_bits: Argument
    tile_bits: Argument
    norm: NormTail = NO_NORM
    route: RouteTail = RouteTail()


class MatvecPart(Struct, frozen=True):
    """One matrix of a product, and its result."""

    weights: Span  # (rows, columns) in quant blocks
    bias: Span | None  # (rows,)
    out: Span  # (T, rows)
    rows: int
    factor: float = 1.0  # multiplies the dequantised blocks


class _Layout(Struct, frozen=True):
    """The layout of a launch with blocks of `threads` threads: lanes per row, rows per block."""

    quant_type: QuantType
    columns: int
    threads: int

    @property
    def lanes(self) -> int:
        return lanes_of_row(self.quant_type, self.columns)

    @property
    def tile(self) -> int:
        return rows_of_block(self.quant_type, self.columns) * self.threads // BLOCK

    def blocks(self, part: MatvecPart) -> int:
        return -(-part.rows // self.tile)

    @property
    def arguments(self) -> tuple[Argument, Argument]:
        return np.int32(bits(self.lanes)), np.int32(bits(self.tile))


def matvec(
    x: Span,
    parts: Sequence[MatvecPart],
    *,
    quant_type: QuantType,
    tokens: int,
    columns: int,
    planes: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Computes out (T, rows) = residual + scale * (factor * W x + bias) for one to three matrices.

    The matrices have the same quant type. `x` is quantised rows (see `quantise`), or floats (T,
    columns) if `planes` is 0 or the weights are floats. Columns are a multiple of the type's quant
    block; for float types they may be any even number.
    """
    of_block = rows_of_block(quant_type, columns)
    threads = block_threads(sum(part.rows for part in parts), of_block)
    layout = _Layout(quant_type, columns, threads)
    operation = "matvec_one" if tokens == 1 else "matvec"
    a, b, c = _all_parts(parts)
    return Launch(
        Kernel("matvec", entry(operation, quant_type, planes), quant_type.name.lower()),
        grid=(sum(map(layout.blocks, parts)), -(-tokens // MAX_TOKENS), 1),
        block=threads,
        arguments=flat(
            MatvecArguments(
                *(x, a, b, c, residual, np.float32(scale), np.int32(tokens)),
                *(np.int32(columns), np.int32(planes), *layout.arguments),
            )
        ),
        writes=_outs(parts),
    )


def matvec_mixed(
    x: Span,
    parts: Sequence[MatvecPart],
    quant_types: Sequence[QuantType],
    *,
    columns: int,
    planes: int,
) -> Launch:
    """Computes out (rows,) = factor * W x + bias of one token for two or three matrices.

    `quant_types` has each matrix's type: two or three different ones, no float types. `x` is what
    `matvec` takes, and the results are bit-identical to those of `matvec`.
    """
    kinds = sorted(set(quant_types))
    of_block = min(rows_of_block(each, columns) for each in kinds)
    threads = block_threads(sum(part.rows for part in parts), of_block)
    layouts = {each: _Layout(each, columns, threads) for each in kinds}
    blocks = (layouts[t].blocks(part) for t, part in zip(quant_types, parts, strict=True))
    numbers = sum(kinds.index(quant_type) << 2 * i for i, quant_type in enumerate(quant_types))
    exact = "" if planes else "_exact"
    types = "+".join(each.name.lower() for each in kinds)
    lanes = [value for layout in layouts.values() for value in layout.arguments]
    return Launch(
        Kernel("matvec_mixed", f"matvec_one_mixed{exact}", types),
        grid=(sum(blocks), 1, 1),
        block=threads,
        arguments=(
            *flat((x, *_all_parts(parts))),
            *(np.int32(columns), np.int32(planes), np.int32(numbers)),
            *(*lanes, *[np.int32(0)] * (2 * MAX_PARTS - len(lanes))),
        ),
        writes=_outs(parts),
    )


def matvec_tiled(
    x: Span,
    parts: Sequence[MatvecPart],
    *,
    quant_type: QuantType,
    tokens: int,
    columns: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Computes `matvec` for quantised weights on tensor cores, with bit-identical results.

    `x` is activations quantised to one plane (see `quantise`).
    """
    lanes = lanes_of_row(quant_type, columns)
    name = quant_type.name.lower()
    return Launch(
        Kernel("matvec_tiled", f"matvec_tiled_{name}", name),
        grid=(sum(-(-part.rows // _TILE_ROWS) for part in parts), -(-tokens // _TILE_TOKENS), 1),
        block=BLOCK,
        arguments=(
            *flat((x, *_all_parts(parts), residual, np.float32(scale))),
            *(np.int32(tokens), np.int32(columns), np.int32(bits(lanes))),
        ),
        writes=_outs(parts),
    )


def with_norm(product: Launch, norm: Launch, counter: Span) -> Launch | None:
    """Returns one launch for `matvec` of one token and the norm of its first matrix's result.

    Returns None if `norm` is not the norm of this result. `counter` is an int32 zero.
    """
    given = named(MatvecArguments, product.arguments)
    tail = norm_tail(norm, given.a.out, given.a.rows, counter)
    if tail is None or not _is_plain(product, given):
        return None
    return with_tail(product, given, tail)


def with_route(product: Launch, route: Launch, counter: Span) -> Launch | None:
    """Returns one launch for `matvec` of a router and `route`, both of one token.

    Returns None for other launches, and for quantised weights. `counter` is an int32 zero.
    """
    given, following = (
        named(MatvecArguments, product.arguments),
        named(RouteArguments, route.arguments),
    )
    is_float = product.kernel.quant_type in _FLOAT_NAMES
    is_one = given.b == NO_PART and route.grid == (1, 1, 1)
    if not (is_float and is_one and _is_plain(product, given)):
        return None
    if not is_same_address(following.logits, given.a.out):
        return None
    names = ("route.done", *(f"route.choice.{name}" for name in ("ids", "weights", "route_time")))
    return replace(
        product,
        arguments=flat(given._replace(route=RouteTail(counter, following.choice))),
        writes=product.writes | argument_indices(MatvecArguments, *names),
    )


def _is_plain(product: Launch, given: MatvecArguments) -> bool:
    """Returns True if a product has one token, and nothing is folded into it."""
    is_of_token = product.kernel.entry.startswith("matvec_one_")
    is_folded = given.norm != NO_NORM or given.route != RouteTail()
    return is_of_token and not is_folded


def _outs(parts: Sequence[MatvecPart]) -> frozenset[int]:
    return argument_indices(MatvecArguments, *("a.out", "b.out", "c.out")[: len(parts)])


def _all_parts(parts: Sequence[MatvecPart]) -> list[PartArguments]:
    return [*map(_part, parts), *[NO_PART] * (MAX_PARTS - len(parts))]


def _part(part: MatvecPart) -> PartArguments:
    rows, factor = np.int32(part.rows), np.float32(part.factor)
    return PartArguments(part.weights, part.bias, part.out, rows, factor)
