"""Launches the kernels that work value by value or row by row, without a product."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
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
from sharpi.ops.cuda.matvec_layout import units_of_row, whole_warps

_THREADS: Final = 256


def add_scaled(a: Span | None, b: Span, out: Span, *, count: int, scale: float) -> Launch:
    """Computes out = a + scale * b of `count` floats; out may be a or b.

    Without `a`, out = scale * b.
    """
    arguments = (a, b, out, np.int32(count), np.float32(scale))
    writes = frozenset(i for i, span in enumerate((a, b, out)) if span == out)
    return Launch(Kernel("add_scaled", "add_scaled"), _blocks(count), _THREADS, arguments, writes)


def sigmoid(x: Span, *, count: int) -> Launch:
    """Computes 1 / (1 + e^-x) of `count` floats, in place."""
    return Launch(
        Kernel("sigmoid", "sigmoid"), _blocks(count), _THREADS, (x, np.int32(count)), frozenset({0})
    )


def soft_cap(x: Span, *, count: int, cap: float) -> Launch:
    """Computes cap * tanh(x / cap) of `count` floats, in place."""
    arguments = (x, np.int32(count), np.float32(cap))
    return Launch(
        Kernel("soft_cap", "soft_cap"), _blocks(count), _THREADS, arguments, frozenset({0})
    )


def gather(x: Span, rows: Span, out: Span, *, outputs: int, width: int) -> Launch:
    """Copies the rows of x (any, width) with the indices `rows` int32 (outputs,) to out."""
    grid = (outputs, _blocks(width)[0], 1)
    return Launch(
        Kernel("gather", "gather"), grid, _THREADS, (x, rows, out, np.int32(width)), frozenset({2})
    )


def _blocks(count: int) -> tuple[int, int, int]:
    return (-(-count // _THREADS), 1, 1)


def argmax(
    logits: Span, out: Span, *, rows: int, width: int, next_inputs: tuple[Span, Span] | None = None
) -> Launch:
    """Writes the id of the largest logit in each row of (rows, width) to out, int32 (rows,).

    Ties yield the lowest id. The id is -1 if a logit is NaN or the largest one is infinite.
    `next_inputs` are the int32 inputs of a step of one token: its token id and its position. The
    kernel updates them for the next step, with id 0 in place of -1.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, *(next_inputs or (None, None)), np.int32(width)),
        writes=frozenset({1} if next_inputs is None else {1, 2, 3}),
    )


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
    return Launch(
        Kernel("embed", f"embed_{name}", name),
        grid=(-(-units_of_row(quant_type, columns) // _EMBED_THREADS), tokens, 1),
        block=_EMBED_THREADS,
        arguments=(table, ids, out, np.int32(columns), np.float32(scale)),
        writes=frozenset({2}),
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
    return Launch(
        Kernel("layer_norm", "layer_norm"),
        grid=(tokens, 1, 1),
        block=whole_warps(-(-width // 2), 1024),
        arguments=(
            *(x, weight, bias, out, quantised),
            *(np.int32(width), np.float32(epsilon), np.int32(planes)),
        ),
        writes=frozenset({3, 4}),
    )


MAX_PARTS: Final = 3
_QUANT_BLOCK: Final = 32  # columns that are quantised together


class PartsArguments(NamedTuple):
    """Three arguments, one for each part of a row."""

    a: Argument
    b: Argument
    c: Argument


class SplitArguments(NamedTuple):
    """The arguments of the kernel `split`."""

    x: Argument
    outs: PartsArguments
    quantised: Argument
    widths: PartsArguments
    num_values: Argument
    planes: Argument


class JoinArguments(NamedTuple):
    """The arguments of the kernel `join`."""

    first: Argument
    second: Argument
    out: Argument
    width: Argument
    second_width: Argument
    num_values: Argument


def split(x: Span, outs: Sequence[Span | None], widths: Sequence[int], *, runs: int) -> Launch:
    """Splits x (runs, sum of widths) into outs[i] (runs, widths[i]), at most three.

    Parts whose `outs` is None are skipped.
    """
    count, unused = runs * sum(widths), MAX_PARTS - len(outs)
    sizes = map(np.int32, (*widths, *(0,) * unused))
    return Launch(
        Kernel("split", "split"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=flat(
            SplitArguments(
                *(x, PartsArguments(*outs, *(None,) * unused), None, PartsArguments(*sizes)),
                *(np.int32(count), np.int32(0)),
            )
        ),
        writes=argument_indices(SplitArguments, *(f"outs.{name}" for name in "abc"[: len(outs)])),
    )


def with_quantise(split: Launch, quantise: Launch) -> Launch | None:
    """Returns one launch for `split` and the quantising of each run of its first part.

    Returns None if `quantise` reads something else, or if parts are not whole blocks of 32 values.
    """
    given = named(SplitArguments, split.arguments)
    following = QuantiseArguments(*quantise.arguments)
    is_first = is_same_address(given.outs.a, following.x) and following.columns == given.widths.a
    widths = [width for width in given.widths if isinstance(width, np.int32)]
    is_whole = all(width % _QUANT_BLOCK == 0 for width in widths)
    if not (is_first and is_whole and given.num_values == quantise.grid[0] * sum(widths)):
        return None
    both = given._replace(quantised=following.quantised, planes=following.planes)
    return replace(
        split,
        arguments=flat(both),
        writes=split.writes | argument_indices(SplitArguments, "quantised"),
    )


def join(first: Span, second: Span, out: Span, *, widths: tuple[int, int], runs: int) -> Launch:
    """Joins first (runs, widths[0]) and second (runs, widths[1]) to out (runs, sum of widths)."""
    count = runs * sum(widths)
    return Launch(
        Kernel("join", "join"),
        grid=(-(-count // _THREADS), 1, 1),
        block=_THREADS,
        arguments=JoinArguments(
            *(first, second, out), *(np.int32(widths[0]), np.int32(widths[1])), np.int32(count)
        ),
        writes=argument_indices(JoinArguments, "out"),
    )


def dequantise(
    weights: Span, out: Span, *, quant_type: QuantType, rows: int, columns: int
) -> Launch:
    """Dequantises weights to out, f16 (rows, columns); values too large for f16 become infinite."""
    name = quant_type.name.lower()
    return Launch(
        Kernel("dequantise", f"dequantise_{name}", name),
        grid=(-(-rows * units_of_row(quant_type, columns) // _THREADS), 1, 1),
        block=_THREADS,
        arguments=(weights, out, np.int32(rows), np.int32(columns)),
        writes=frozenset({1}),
    )


_WARP_COLUMNS = 32


class QuantiseArguments(NamedTuple):
    """The arguments of the kernel `quantise`."""

    x: Argument
    quantised: Argument
    columns: Argument
    planes: Argument


def quantise(x: Span, quantised: Span, *, tokens: int, columns: int, planes: int) -> Launch:
    """Quantises floats (T, columns) to int8 rows with a scale per 32 columns, to `quantised`.

    With two planes, the second holds the quantised remainders (kernels/cuda/quant/activations.cuh).
    Columns are a multiple of 32. The grid has tokens on its x axis, because a batch may have a row
    for each head of each token, and the y axis is limited to 65,535 blocks.
    """
    warps = columns // _WARP_COLUMNS
    return Launch(
        Kernel("quantise", "quantise"),
        grid=(tokens, -(-warps // (_THREADS // 32)), 1),
        block=_THREADS,
        arguments=QuantiseArguments(x, quantised, np.int32(columns), np.int32(planes)),
        writes=frozenset({1}),
    )
