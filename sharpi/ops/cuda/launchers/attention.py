"""Launches the attention kernels: one for spans of 256 positions, one that merges the spans."""

from math import gcd
from typing import Final

import numpy as np
from msgspec.structs import replace

from sharpi.device.launch import Argument, Kernel, Launch, Scalar, Span, is_same_place
from sharpi.ops.cuda.launchers.heads import ARGUMENTS_OF_GROUP, NO_GROUP, PAGES, KvCacheSlice

SPAN_POSITIONS: Final = 256
MAX_VALUE_DIM: Final = 1024

_THREADS: Final = 256
_HEADS_AT_ONCE: Final = (1, 2, 4, 8)  # query heads of a KV head; one entry point each
_BLOCK_COLUMNS: Final = 32
_MERGED_LATER: Final[tuple[Argument, ...]] = (None, None, None, None, np.int32(0))
_PREPARED_BEFORE: Final[tuple[Argument, ...]] = (np.int32(0), np.int32(0))
_DONE, _FIRST_GROUP = 16, 21  # indices of arguments
_MOST_SHARED: Final = 8 << 10  # bytes beside the kernel's own


def scratch_bytes(*, tokens: int, num_heads: int, value_dim: int, max_positions: int) -> int:
    """Returns the bytes of `attention`'s scratch: two floats and the values for each span."""
    return 4 * tokens * num_heads * _spans(max_positions) * (2 + value_dim)


def attention(
    q: Span,
    keys: Span,
    values: Span | None,
    out: Span | None,
    rounded: Span | None,
    scratch: Span,
    *,
    place: KvCacheSlice,
    tokens: int,
    num_heads: int,
    num_kv_heads: int,
    key_dim: int,
    value_dim: int,
    scale: float,
    window: int,
    is_chunked: bool = False,
    soft_cap: float,
    sinks: Span | None,
    planes: int,
    max_positions: int,
) -> tuple[Launch, Launch]:
    """Computes softmax(scale * q k) v of q (T, num_heads, key_dim): (T, num_heads * value_dim).

    The result goes to floats `out` and/or to `rounded` activation rows. `keys` and `values` are a
    layer's pages (kernels/cuda/attention/kv_cache.cuh), in which the tokens' own keys and values
    are already stored; without `values`, the first value_dim values of a key are its value. The
    positions in `place` are below max_positions. A `window` of 0 does not limit the positions; with
    `is_chunked` a window begins at a multiple of its size. A `soft_cap` of 0 is none. `sinks`
    (num_heads,) are one more score in each denominator. Dims are even, for q8_0 multiples of 32;
    value_dim is at most 1024.
    """
    spans, group = _spans(max_positions), num_heads // num_kv_heads
    tiles = -(-group // _HEADS_AT_ONCE[-1])
    heads_each = -(-group // tiles)
    variant = min(heads for heads in _HEADS_AT_ONCE if heads >= heads_each)
    part = Launch(
        Kernel("attention", f"attention_heads{variant}_{place.kv_type}", place.kv_type),
        grid=(spans * tiles, num_kv_heads, tokens),
        block=_THREADS,
        arguments=(
            *(q, keys, values, place.page_tables, place.sequences, place.positions, scratch),
            *(np.int32(place.table_stride), np.int32(num_heads), np.int32(heads_each)),
            *(np.int32(key_dim), np.int32(value_dim)),
            *(np.float32(scale), np.int32(window), np.int32(is_chunked)),
            np.float32(soft_cap),
            *_MERGED_LATER,
            *(NO_GROUP * 3),
            *_PREPARED_BEFORE,
        ),
        writes=frozenset({6}),
    )
    heads_merged = 1 if rounded is None else _BLOCK_COLUMNS // gcd(value_dim, _BLOCK_COLUMNS)
    merge = Launch(
        Kernel("attention_merge", "attention_merge"),
        grid=(num_heads // heads_merged, tokens, 1),
        block=min(_THREADS, -(-heads_merged * value_dim // 32) * 32),
        arguments=(
            *(scratch, place.positions, sinks, out, rounded),
            *(np.int32(num_heads), np.int32(heads_merged), np.int32(spans)),
            *(np.int32(value_dim), np.int32(window), np.int32(is_chunked), np.int32(planes)),
        ),
        writes=frozenset({3, 4}),
    )
    return part, merge


def _spans(max_positions: int) -> int:
    return -(-max_positions // SPAN_POSITIONS)


def with_merge(part: Launch, merge: Launch, counters: Span) -> Launch | None:
    """Returns one launch in place of the two of `attention`, or None where that is impossible.

    It is impossible if results are rounded in blocks of 32 and a block would cross KV heads.
    `counters` are int32 zeros; there must be one for each KV head of each token.
    """
    tokens, num_kv_heads = part.grid[2], part.grid[1]
    num_heads, value_dim = _number(part.arguments[8]), _number(part.arguments[11])
    _, _, sinks, out, rounded, *_, planes = merge.arguments
    divides = rounded is not None and num_heads // num_kv_heads * value_dim % _BLOCK_COLUMNS != 0
    if not is_same_place(part.arguments[6], merge.arguments[0]) or divides:
        return None
    if 4 * tokens * num_kv_heads > counters.num_bytes:
        return None
    done = _DONE + len(_MERGED_LATER)
    return replace(
        part,
        arguments=(
            *part.arguments[:_DONE],
            *(counters, sinks, out, rounded, planes),
            *part.arguments[done:],
        ),
        writes=part.writes | {_DONE, _DONE + 2, _DONE + 3},
    )


def with_heads(heads: Launch, part: Launch) -> Launch | None:
    """Returns one launch for `heads` and the first of `attention`, or None if that is impossible.

    Each block of the launch prepares the queries that it reads. A KV head must therefore have one
    block per span, and `heads` must prepare nothing but what this attention reads.
    """
    q, keys, values = part.arguments[:3]
    num_heads, heads_each, key_dim, value_dim = map(_number, part.arguments[8:12])
    groups = _by_use(heads, q, keys, values)
    fits = 4 * (heads_each + 2) * key_dim <= _MOST_SHARED
    if groups is None or heads_each * part.grid[1] != num_heads or value_dim > key_dim or not fits:
        return None
    interleaved = heads.arguments[3 * ARGUMENTS_OF_GROUP + 5]
    stored = {1, 2} | {_FIRST_GROUP + i * ARGUMENTS_OF_GROUP + PAGES for i in (1, 2)}
    return replace(
        part,
        arguments=(
            *part.arguments[:_FIRST_GROUP],
            *(value for group in groups for value in group),
            *(interleaved, np.int32(key_dim)),
        ),
        writes=part.writes | stored,
        shared_bytes=4 * (heads_each + 2) * key_dim,
    )


def _by_use(
    heads: Launch, q: Argument, keys: Argument, values: Argument
) -> list[tuple[Argument, ...]] | None:
    """Returns the groups of queries, of keys and of values in a launch of `heads`.

    NO_GROUP stands for missing keys or values. Returns None without queries, or if there is a group
    of anything else.
    """
    found = [NO_GROUP] * 3
    for i in range(3):
        group = heads.arguments[i * ARGUMENTS_OF_GROUP : (i + 1) * ARGUMENTS_OF_GROUP]
        pages = group[PAGES]
        if group == NO_GROUP:
            continue
        if pages is None and is_same_place(group[0], q):
            found[0] = group
        elif pages is not None and (is_same_place(pages, keys) or is_same_place(pages, values)):
            found[1 if is_same_place(pages, keys) else 2] = group
        else:
            return None
    return None if found[0] == NO_GROUP else found


def _number(argument: Argument) -> int:
    assert isinstance(argument, Scalar)
    return int(argument)
