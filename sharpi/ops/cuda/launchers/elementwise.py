"""Launches the kernels that work value by value or row by row, without a product."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharpi.device.launch import Kernel, Launch, Span, is_same_address, named
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.matvec_layout import units_of_row, whole_warps
from sharpi.ops.interface import Unary

_THREADS: Final = 256


def _blocks(count: int) -> tuple[int]:
    return (-(-count // _THREADS),)


def add_scaled(a: Span | None, b: Span, out: Span, *, count: int, scale: float) -> Launch:
    """Computes out = a + scale * b of `count` floats, without `a` scale * b; out may be a or b."""
    return Launch.of("add_scaled", _blocks(count), _THREADS, (a, b, out, count, scale), [out])


def unary(x: Span, function: Unary, *parameters: float, count: int) -> Launch:
    """Computes a function of each of `count` floats, in place; see Ops.unary."""
    given = (*parameters, 0.0, 0.0, 0.0, 0.0)[:4]
    return Launch.of("unary", _blocks(count), _THREADS, (x, count, int(function), *given), [x])


def gather(x: Span, rows: Span, out: Span, *, outputs: int, width: int) -> Launch:
    """Copies the rows of x (any, width) with the indices `rows` int32 (outputs,) to out."""
    grid = (outputs, *_blocks(width))
    return Launch.of("gather", grid, _THREADS, (x, rows, out, width), [out])


def argmax(
    logits: Span, out: Span, *, rows: int, width: int, next_inputs: tuple[Span, Span] | None = None
) -> Launch:
    """Writes the id of the largest logit in each row of (rows, width) to out, int32 (rows,).

    Ties yield the lowest id. The id is -1 if a logit is NaN or the largest one is infinite.
    `next_inputs` are the int32 inputs of a step of one token: its token id and its position. The
    kernel updates them for the next step, with id 0 in place of -1.
    """
    written = (out, *(next_inputs or (None, None)))
    return Launch.of("argmax", (rows,), 1024, (logits, *written, width), written)


_EMBED_THREADS = 64


def embed(
    table: Span,
    ids: Span,
    out: Span,
    *,
    quant_type: QuantType,
    tokens: int,
    columns: int,
    scale: float,
) -> Launch:
    """Computes out (T, columns): the table's rows for `ids` int32 (T,), times `scale`."""
    name = quant_type.name.lower()
    return Launch.of(
        Kernel("embed", f"embed_{name}", name),
        (-(-units_of_row(quant_type, columns) // _EMBED_THREADS), tokens),
        _EMBED_THREADS,
        (table, ids, out, columns, scale),
        [out],
    )


def layer_norm(
    x: Span,
    weight: Span,
    bias: Span,
    out: Span | None,
    quantised: Span | None,
    *,
    tokens: int,
    width: int,
    epsilon: float,
    planes: int,
) -> Launch:
    """Computes (x - mean) / deviation * weight + bias of x (T, width); weight and bias (width,).

    The result is written as floats to `out` and/or quantised to `quantised` (see `quantise`),
    for which the width is a multiple of 32.
    """
    arguments = (x, weight, bias, out, quantised, width, epsilon, planes)
    block = whole_warps(-(-width // 2), 1024)
    return Launch.of("layer_norm", (tokens,), block, arguments, [out, quantised])


MAX_PARTS: Final = 3
_QUANT_BLOCK: Final = 32  # columns that are quantised together


class Outs(NamedTuple):
    """The memory of the parts of a row."""

    a: Span | None
    b: Span | None
    c: Span | None


class Widths(NamedTuple):
    """The widths of the parts of a row."""

    a: int
    b: int
    c: int


class SplitArguments(NamedTuple):
    """The arguments of the kernel `split`."""

    x: Span
    outs: Outs
    quantised: Span | None
    widths: Widths
    num_values: int
    planes: int


class JoinArguments(NamedTuple):
    """The arguments of the kernel `join`."""

    first: Span
    second: Span
    out: Span
    width: int
    second_width: int
    num_values: int


def split(x: Span, outs: Sequence[Span | None], widths: Sequence[int], *, runs: int) -> Launch:
    """Splits x (runs, sum of widths) into outs[i] (runs, widths[i]), at most three.

    Parts whose `outs` is None are skipped.
    """
    count, unused = runs * sum(widths), MAX_PARTS - len(outs)
    spans, sizes = Outs(*outs, *(None,) * unused), Widths(*widths, *(0,) * unused)
    arguments = SplitArguments(x, spans, None, sizes, count, 0)
    return Launch.of("split", _blocks(count), _THREADS, arguments, outs)


def with_quantise(split: Launch, quantise: Launch) -> Launch | None:
    """Returns one launch for `split` and the quantising of each run of its first part.

    Returns None if `quantise` reads something else, or if parts are not whole blocks of 32 values.
    """
    given = named(SplitArguments, split.arguments)
    following = named(QuantiseArguments, quantise.arguments)
    is_first = is_same_address(given.outs.a, following.x) and following.columns == given.widths.a
    is_whole = all(width % _QUANT_BLOCK == 0 for width in given.widths)
    if not (is_first and is_whole and given.num_values == quantise.grid[0] * sum(given.widths)):
        return None
    both = given._replace(quantised=following.quantised, planes=following.planes)
    return split.extended(both, both.quantised)


def join(first: Span, second: Span, out: Span, *, widths: tuple[int, int], runs: int) -> Launch:
    """Joins first (runs, widths[0]) and second (runs, widths[1]) to out (runs, sum of widths)."""
    count = runs * sum(widths)
    arguments = JoinArguments(first, second, out, *widths, count)
    return Launch.of("join", _blocks(count), _THREADS, arguments, [out])


def dequantise(
    weights: Span, out: Span, *, quant_type: QuantType, rows: int, columns: int
) -> Launch:
    """Dequantises weights to out, f16 (rows, columns); values too large for f16 become infinite."""
    name = quant_type.name.lower()
    kernel = Kernel("dequantise", f"dequantise_{name}", name)
    grid = _blocks(rows * units_of_row(quant_type, columns))
    return Launch.of(kernel, grid, _THREADS, (weights, out, rows, columns), [out])


_WARP_COLUMNS = 32


class QuantiseArguments(NamedTuple):
    """The arguments of the kernel `quantise`."""

    x: Span
    quantised: Span
    columns: int
    planes: int


def quantise(x: Span, quantised: Span, *, tokens: int, columns: int, planes: int) -> Launch:
    """Quantises floats (T, columns) to int8 rows with a scale per 32 columns, to `quantised`.

    With two planes, the second holds the quantised remainders (kernels/cuda/quant/activations.cuh).
    Columns are a multiple of 32. The grid has tokens on its x axis, because a batch may have a row
    for each head of each token, and the y axis is limited to 65,535 blocks.
    """
    grid = (tokens, -(-columns // _WARP_COLUMNS // (_THREADS // 32)))
    arguments = QuantiseArguments(x, quantised, columns, planes)
    return Launch.of("quantise", grid, _THREADS, arguments, [quantised])
