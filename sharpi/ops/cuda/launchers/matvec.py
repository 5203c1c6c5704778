"""Launches the kernels for matrix-vector products of quantised weights."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sharpi.device.launch import Kernel, Launch, Span, is_same_address, named
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.route import RouteArguments, RouteTail
from sharpi.ops.cuda.launchers.rms_norm import NO_NORM, NormTail, with_tail
from sharpi.ops.cuda.matvec_layout import (
    BLOCK,
    FLOAT_TYPES,
    MAX_TOKENS,
    bits,
    block_threads,
    kernel,
    lanes_of_row,
    rows_of_block,
)

MAX_PARTS = 3
_TILE_ROWS, _TILE_TOKENS = 64, 32
_FLOAT_NAMES = frozenset(each.name.lower() for each in FLOAT_TYPES)


class PartArguments(NamedTuple):
    """The arguments of one matrix; the default is no matrix."""

    weights: Span | None = None
    bias: Span | None = None
    out: Span | None = None
    rows: int = 0
    factor: float = 0.0


NO_PART: Final = PartArguments()


class MatvecArguments(NamedTuple):
    """The arguments of matvec.cu; kernels of other files begin with the same ones, up to `c`."""

    x: Span
    a: PartArguments
    b: PartArguments
    c: PartArguments
    residual: Span | None
    scale: float
    tokens: int
    columns: int
    planes: int
    lane_bits: int
    tile_bits: int
    norm: NormTail = NO_NORM
    route: RouteTail = RouteTail()


class MatvecPart(Struct, frozen=True):
    """One matrix (rows, columns) on the GPU, and its result."""

    weights: Span  # quant blocks
    bias: Span | None  # (rows,)
    out: Span  # (T, rows)
    quant_type: QuantType
    rows: int
    columns: int
    factor: float = 1.0  # multiplies the dequantised blocks


def matvec(
    x: Span,
    parts: Sequence[MatvecPart],
    *,
    tokens: int,
    planes: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Computes out (T, rows) = residual + scale * (factor * W x + bias) for one to three matrices.

    The matrices have the same quant type and columns. `x` is quantised rows (see `quantise`), or
    floats (T, columns) if `planes` is 0 or the weights are floats. Columns are a multiple of the
    type's quant block; for float types they may be any even number.
    """
    quant_type, columns, threads = parts[0].quant_type, parts[0].columns, _threads(parts)
    tile = _tile(parts[0], threads)
    lane_bits = bits(lanes_of_row(quant_type, columns))
    operation = "matvec_one" if tokens == 1 else "matvec"
    return Launch.of(
        kernel("matvec", quant_type, planes, operation),
        (sum(-(-part.rows // tile) for part in parts), -(-tokens // MAX_TOKENS)),
        threads,
        MatvecArguments(
            *(x, *_all_parts(parts), residual, scale),
            *(tokens, columns, planes, lane_bits, bits(tile)),
        ),
        _outs(parts),
    )


def matvec_mixed(x: Span, parts: Sequence[MatvecPart], *, planes: int) -> Launch:
    """Computes out (rows,) = factor * W x + bias of one token for two or three matrices.

    The matrices have two or three different types, no float types. `x` is what `matvec` takes, and
    the results are bit-identical to those of `matvec`.
    """
    kinds = {part.quant_type: part for part in sorted(parts, key=lambda part: part.quant_type)}
    threads, columns = _threads(parts), parts[0].columns
    tiles = {kind: _tile(part, threads) for kind, part in kinds.items()}
    numbers = sum(list(kinds).index(part.quant_type) << 2 * i for i, part in enumerate(parts))
    lanes = [bits(n) for kind in kinds for n in (lanes_of_row(kind, columns), tiles[kind])]
    types = "+".join(kind.name.lower() for kind in kinds)
    return Launch.of(
        Kernel("matvec_mixed", f"matvec_one_mixed{'' if planes else '_exact'}", types),
        (sum(-(-part.rows // tiles[part.quant_type]) for part in parts),),
        threads,
        (
            *(x, *_all_parts(parts), columns, planes, numbers),
            *(*lanes, *[0] * (2 * MAX_PARTS - len(lanes))),
        ),
        _outs(parts),
    )


def matvec_tiled(
    x: Span,
    parts: Sequence[MatvecPart],
    *,
    tokens: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Computes `matvec` for quantised weights on tensor cores, with bit-identical results.

    `x` is activations quantised to one plane (see `quantise`).
    """
    quant_type, columns = parts[0].quant_type, parts[0].columns
    lane_bits = bits(lanes_of_row(quant_type, columns))
    return Launch.of(
        kernel("matvec_tiled", quant_type, planes=1),
        (sum(-(-part.rows // _TILE_ROWS) for part in parts), -(-tokens // _TILE_TOKENS)),
        BLOCK,
        (x, *_all_parts(parts), residual, scale, tokens, columns, lane_bits),
        _outs(parts),
    )


def _threads(parts: Sequence[MatvecPart]) -> int:
    of_block = min(rows_of_block(part.quant_type, part.columns) for part in parts)
    return block_threads(sum(part.rows for part in parts), of_block)


def _tile(part: MatvecPart, threads: int) -> int:
    """Returns the rows that a block of `threads` threads computes."""
    return rows_of_block(part.quant_type, part.columns) * threads // BLOCK


def _outs(parts: Sequence[MatvecPart]) -> list[Span]:
    return [part.out for part in parts]


def _all_parts(parts: Sequence[MatvecPart]) -> tuple[PartArguments, PartArguments, PartArguments]:
    given = [PartArguments(p.weights, p.bias, p.out, p.rows, p.factor) for p in parts]
    a, b, c = given + [NO_PART] * (MAX_PARTS - len(parts))
    return a, b, c


def with_norm(product: Launch, norm: Launch, counter: Span) -> Launch | None:
    """Returns one launch for `matvec` of one token and the norm of its first matrix's result.

    Returns None if `norm` is not the norm of this result. `counter` is an int32 zero.
    """
    given = named(MatvecArguments, product.arguments)
    if not _is_plain(product, given):
        return None
    return with_tail(product, given, (given.a.out, given.a.rows), norm, counter)


def with_route(product: Launch, route: Launch, counter: Span) -> Launch | None:
    """Returns one launch for `matvec` of a router and `route`, both of one token.

    Returns None for other launches, and for quantised weights. `counter` is an int32 zero.
    """
    given = named(MatvecArguments, product.arguments)
    following = named(RouteArguments, route.arguments)
    is_float = product.kernel.quant_type in _FLOAT_NAMES
    is_one = given.b == NO_PART and route.grid == (1, 1, 1)
    is_result = is_same_address(following.logits, given.a.out)
    if not (is_float and is_one and is_result and _is_plain(product, given)):
        return None
    choice = following.choice
    both = given._replace(route=RouteTail(counter, choice))
    return product.extended(both, counter, choice.ids, choice.weights, choice.route_time)


def _is_plain(product: Launch, given: MatvecArguments) -> bool:
    """Returns True if a product has one token, and nothing is folded into it."""
    is_of_token = product.kernel.entry.startswith("matvec_one_")
    is_folded = given.norm != NO_NORM or given.route != RouteTail()
    return is_of_token and not is_folded
