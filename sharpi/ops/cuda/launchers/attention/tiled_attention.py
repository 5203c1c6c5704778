"""Launches the kernel that computes attention of many tokens on tensor cores."""

from typing import Final

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.attention_shape import AttentionShape
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
    pages: tuple[Span, Span | None],
    out: Span,
    *,
    cache_slice: KvCacheSlice,
    shape: AttentionShape,
    tokens: int,
    sinks: Span | None,
    hadamard: int = 0,
) -> Launch:
    """Computes attention of adjacent tokens of one sequence to floats `out`.

    `attention.attention` describes the arguments. Queries and attention weights are rounded to f16.
    key_dim is at most MAX_KEY_DIM, value_dim at most MAX_VALUE_DIM.
    """
    s, c = shape, cache_slice
    assert c.sequences is None, "tokens of several sequences"
    return Launch.of(
        kernel_of("tiled_attention", "tiled_attention_", variant(s.value_dim), c.types),
        (-(-tokens * (s.num_heads // s.num_kv_heads) // ROWS), s.num_kv_heads),
        _THREADS,
        (
            *(q, *pages, c.page_tables, c.positions, sinks, out, tokens, s.num_heads, s.key_dim),
            *(s.value_dim, s.scale, s.window, s.is_chunked, s.soft_cap, hadamard),
        ),
        [out],
        shared_bytes=shared_bytes(s.key_dim),
    )


def kernel_of(file: str, stem: str, size: int, types: KvTypes) -> Kernel:
    """Returns the kernel `<stem><size>` of `<file>.cu`, for these types of keys and values."""
    entry = f"{stem}{size}_{types.keys.upper()}_{types.values.upper()}"
    return Kernel(file, entry, f"{types.keys}+{types.values}", size)


def variant(value_dim: int) -> int:
    """Returns the number in the entry point's name: the largest value_dim that it supports."""
    return min(most for most in _VARIANTS if most >= value_dim)


def shared_bytes(key_dim: int) -> int:
    """Returns the kernel's shared memory in bytes: TileShared of attention_tile.cuh."""
    queries = ROWS * (-(-key_dim // _COLUMNS) * _COLUMNS + _PADDING)
    staged, weights = ((count * (_COLUMNS + _PADDING)) for count in (_PAGE, ROWS))
    scores = ROWS * (_PAGE + _SCORE_PADDING + 3)
    return _HALF * (queries + staged + weights) + _FLOAT * scores
