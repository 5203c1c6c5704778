"""Launches the split attention kernels: one per span of 256 positions, one that merges spans."""

from collections.abc import Sequence
from math import gcd
from typing import Final, NamedTuple

from msgspec.structs import replace

from sharpi.device.launch import Kernel, Launch, Span, is_same_address, named
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cuda.launchers.attention import tiled_attention
from sharpi.ops.cuda.launchers.attention.heads import (
    NO_GROUP,
    GroupArguments,
    HeadsArguments,
    KvCacheSlice,
)
from sharpi.ops.cuda.matvec_layout import whole_warps


class AttentionArguments(NamedTuple):
    """The arguments in the order of kernels/cuda/attention/attention.cu, which explains them.

    The fields from `done` on are for launches that are folded into attention: the merge of spans,
    and the preparation of heads. By default nothing is folded in.
    """

    queries: Span
    keys: Span
    values: Span | None
    page_tables: Span
    sequences: Span | None
    positions: Span
    scratch: Span
    table_stride: int
    num_heads: int
    heads_each: int
    key_dim: int
    value_dim: int
    scale: float
    window: int
    is_chunked: int
    soft_cap: float
    done: Span | None = None
    sinks: Span | None = None
    out: Span | None = None
    quantised: Span | None = None
    planes: int = 0
    hadamard: int = 0
    q: GroupArguments = NO_GROUP
    k: GroupArguments = NO_GROUP
    v: GroupArguments = NO_GROUP
    interleaved: int = 0
    row_floats: int = 0


SPAN_POSITIONS: Final = 256
MAX_VALUE_DIM: Final = 1024

_THREADS: Final = 256
_HEADS_AT_ONCE: Final = (1, 2, 4, 8)  # query heads per KV head; each has its own entry point
_BLOCK_COLUMNS: Final = 32
_MOST_SHARED: Final = 8 << 10  # bytes of prepared heads in shared memory


class MergeArguments(NamedTuple):
    """The arguments of the kernel that merges spans (attention_merge.cu)."""

    scratch: Span
    positions: Span
    sinks: Span | None
    out: Span | None
    quantised: Span | None
    num_heads: int
    heads_each: int
    spans: int
    value_dim: int
    window: int
    is_chunked: int
    planes: int
    hadamard: int


def scratch_bytes(shape: AttentionShape, tokens: int, max_positions: int) -> int:
    """Returns the bytes of the argument `scratch` of `attention`.

    For each token, head and span it has two floats and value_dim partial sums.
    """
    return 4 * tokens * shape.num_heads * _spans(max_positions) * (2 + shape.value_dim)


def attention(
    q: Span,
    pages: tuple[Span, Span | None],
    out: Span | None,
    quantised: Span | None,
    scratch: Span,
    *,
    cache_slice: KvCacheSlice,
    shape: AttentionShape,
    tokens: int,
    sinks: Span | None,
    planes: int,
    max_positions: int,
    hadamard: int = 0,
    in_tiles: bool = False,
) -> tuple[Launch, Launch]:
    """Computes softmax(scale * q k) v of q (T, num_heads, key_dim): (T, num_heads * value_dim).

    The result is written as floats to `out` and/or quantised to `quantised` (see `quantise`).
    `pages` are a layer's keys and values (kernels/cuda/attention/kv_cache.cuh), in which those of
    these tokens are already stored. Without values, the first value_dim numbers of a key are its
    value. Positions of `cache_slice` are below max_positions. `sinks` (num_heads,) add one more
    score to each softmax denominator. `hadamard` is the block size of a Hadamard transform of the
    values, which is undone; 0 for none. Dims are even, and multiples of 32 for all types but f16;
    value_dim is at most 1024. With `in_tiles`, tensor cores compute attention, for the dims that
    `tiled_attention` supports.
    """
    s, c, spans = shape, cache_slice, _spans(max_positions)
    form = _tiled(c, s) if in_tiles else _plain(c, s)
    part = Launch.of(
        form.kernel,
        (spans * form.tiles, s.num_kv_heads, tokens),
        _THREADS,
        AttentionArguments(
            *(q, pages[0], pages[1], c.page_tables, c.sequences, c.positions, scratch),
            *(c.table_stride, s.num_heads, form.heads_each, s.key_dim, s.value_dim),
            *(s.scale, s.window, s.is_chunked, s.soft_cap),
        ),
        [scratch],
        shared_bytes=form.shared_bytes,
    )
    heads_merged = 1 if quantised is None else _BLOCK_COLUMNS // gcd(s.value_dim, _BLOCK_COLUMNS)
    merge = Launch.of(
        "attention_merge",
        (s.num_heads // heads_merged, tokens),
        whole_warps(heads_merged * s.value_dim, _THREADS),
        MergeArguments(
            *(scratch, c.positions, sinks, out, quantised, s.num_heads, heads_merged, spans),
            *(s.value_dim, s.window, s.is_chunked, planes, hadamard),
        ),
        [scratch, out, quantised],
    )
    return part, merge


class _Form(NamedTuple):
    """A kernel, and how it splits the query heads that share a KV head."""

    kernel: Kernel
    tiles: int
    heads_each: int
    shared_bytes: int = 0


def _plain(cache_slice: KvCacheSlice, shape: AttentionShape) -> _Form:
    group = shape.num_heads // shape.num_kv_heads
    tiles = -(-group // _HEADS_AT_ONCE[-1])
    heads_each = -(-group // tiles)
    size = min(heads for heads in _HEADS_AT_ONCE if heads >= heads_each)
    kernel = tiled_attention.kernel_of("attention", "attention_heads", size, cache_slice.types)
    return _Form(kernel, tiles, heads_each)


def _tiled(cache_slice: KvCacheSlice, shape: AttentionShape) -> _Form:
    group = shape.num_heads // shape.num_kv_heads
    tiles, size = -(-group // tiled_attention.ROWS), tiled_attention.variant(shape.value_dim)
    types = cache_slice.types
    kernel = tiled_attention.kernel_of("split_attention", "split_attention_", size, types)
    return _Form(kernel, tiles, -(-group // tiles), tiled_attention.shared_bytes(shape.key_dim))


def _spans(max_positions: int) -> int:
    return -(-max_positions // SPAN_POSITIONS)


def with_merge(part: Launch, merge: Launch, counters: Span) -> Launch | None:
    """Returns one launch that replaces `part` and `merge`, the two launches of `attention`.

    `counters` are int32 zeros, one for each KV head of each token. Returns None if they are too
    few, if the launches do not belong together, or if results are quantised and a quant block of 32
    would span two KV heads.
    """
    given = named(AttentionArguments, part.arguments)
    merged = named(MergeArguments, merge.arguments)
    _, num_kv_heads, tokens = part.grid
    columns = given.num_heads // num_kv_heads * given.value_dim
    divides = merged.quantised is not None and columns % _BLOCK_COLUMNS != 0
    if not is_same_address(given.scratch, merged.scratch) or divides:
        return None
    if 4 * tokens * num_kv_heads > counters.num_bytes:
        return None
    both = given._replace(
        done=counters,
        sinks=merged.sinks,
        out=merged.out,
        quantised=merged.quantised,
        planes=merged.planes,
        hadamard=merged.hadamard,
    )
    return part.extended(both, counters, both.out, both.quantised)


def with_heads(heads: Launch, part: Launch) -> Launch | None:
    """Returns one launch that replaces `heads` and `part`, or None if no kernel can do both.

    `heads` is a launch of `heads.heads`, `part` the first launch of `attention`. In the new launch,
    each block of attention first prepares the queries that it reads. So there must be one block per
    KV head and span, and `heads` must prepare only the inputs of this attention.
    """
    given = named(AttentionArguments, part.arguments)
    prepared = named(HeadsArguments, heads.arguments)
    groups = _by_use([prepared.a, prepared.b, prepared.c], given)
    rows_bytes = 4 * (given.heads_each + 2) * given.key_dim
    is_one_block = given.heads_each * part.grid[1] == given.num_heads
    fits = rows_bytes <= _MOST_SHARED and given.value_dim <= given.key_dim
    if groups is None or not (is_one_block and fits):
        return None
    q, k, v = groups
    both = given._replace(q=q, k=k, v=v, interleaved=prepared.interleaved, row_floats=given.key_dim)
    written = (both.keys, both.values, k.pages, v.pages)
    extended = part.extended(both, *written)
    return replace(extended, shared_bytes=part.shared_bytes + rows_bytes)


def _by_use(
    groups: Sequence[GroupArguments], given: AttentionArguments
) -> list[GroupArguments] | None:
    """Returns the groups as queries, keys and values; None if there are other groups."""
    found = [NO_GROUP] * 3
    for group in groups:
        if group.pages is None and is_same_address(group.x, given.queries):
            found[0] = group
        elif is_same_address(group.pages, given.keys):
            found[1] = group
        elif is_same_address(group.pages, given.values):
            found[2] = group
        elif group != NO_GROUP:
            return None
    return None if found[0] == NO_GROUP else found
