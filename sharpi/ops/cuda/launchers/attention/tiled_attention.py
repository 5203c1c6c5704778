"""Launches the kernel that computes attention of many tokens on tensor cores."""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.launchers.attention.heads import KvCacheSlice
from sharpi.settings import KvTypes

MAX_KEY_DIM: Final = 576  # the most for which shared memory holds 32 queries, on every GPU
MAX_VALUE_DIM: Final = 512

_THREADS: Final = 256
ROWS: Final = 32  # rows of a block: queries of heads that share a KV head
_COLUMNS, _PAGE, _PADDING, _SCORE_PADDING = 64, 64, 8, 4
_VARIANTS: Final = (64, 128, 256, 512)  # entry points, by the largest value_dim of each
_HALF, _FLOAT = 2, 4


def tiled_attention(
    q: Span,
    keys: Span,
    values: Span | None,
    out: Span,
    *,
    cache_slice: KvCacheSlice,
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
    hadamard: int = 0,
) -> Launch:
    """Computes attention of adjacent tokens of one sequence to floats `out`.

    `attention.attention` describes the arguments. Queries and attention weights are rounded to f16.
    key_dim is at most MAX_KEY_DIM, value_dim at most MAX_VALUE_DIM.
    """
    assert cache_slice.sequences is None, "tokens of several sequences"
    rows, size = tokens * (num_heads // num_kv_heads), variant(value_dim)
    return Launch(
        kernel_of("tiled_attention", "tiled_attention_", size, cache_slice.types),
        grid=(-(-rows // ROWS), num_kv_heads, 1),
        block=_THREADS,
        arguments=(
            *(q, keys, values, cache_slice.page_tables, cache_slice.positions, sinks, out),
            *(np.int32(tokens), np.int32(num_heads), np.int32(key_dim), np.int32(value_dim)),
            *(np.float32(scale), np.int32(window), np.int32(is_chunked), np.float32(soft_cap)),
            np.int32(hadamard),
        ),
        writes=frozenset({6}),
        shared_bytes=shared_bytes(key_dim),
    )


def kernel_of(file: str, stem: str, size: int, types: KvTypes) -> Kernel:
    """Returns the kernel `<stem><size>` of `<file>.cu`, for these types of keys and values."""
    entry = f"{stem}{size}_{types.keys.upper()}_{types.values.upper()}"
    return Kernel(file, entry, f"{types.keys}+{types.values}", size)


def variant(value_dim: int) -> int:
    """Returns the number in the name of the entry point for `value_dim`.

    It is the largest value_dim that this entry point supports.
    """
    return min(most for most in _VARIANTS if most >= value_dim)


def shared_bytes(key_dim: int) -> int:
    """Returns the kernel's shared memory in bytes: TileShared of attention_tile.cuh."""
    queries = ROWS * (-(-key_dim // _COLUMNS) * _COLUMNS + _PADDING)
    staged, weights = ((count * (_COLUMNS + _PADDING)) for count in (_PAGE, ROWS))
    scores = ROWS * (_PAGE + _SCORE_PADDING + 3)
    return _HALF * (queries + staged + weights) + _FLOAT * scores
