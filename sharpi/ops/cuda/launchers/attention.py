"""Launches the attention kernels: one for spans of 256 positions, one that merges the spans."""

from math import gcd
from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.launchers.heads import KvCacheSlice

SPAN_POSITIONS: Final = 256
MAX_VALUE_DIM: Final = 1024

_THREADS: Final = 256
_HEADS_AT_ONCE: Final = (1, 2, 4, 8)  # query heads of a KV head; one entry point each
_BLOCK_COLUMNS: Final = 32


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
    layer's pages (kernels/cuda/attention/kv_cache.cuh), which already hold those of the tokens;
    without `values`, the first value_dim values of a key are its value. The positions in `place`
    are below max_positions. `window` 0 sees all positions; with `is_chunked` it begins at a
    multiple of its size. `soft_cap` 0 is none. `sinks` (num_heads,) are one more score in each
    denominator. Dims are even, for q8_0 multiples of 32; value_dim is at most 1024.
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
