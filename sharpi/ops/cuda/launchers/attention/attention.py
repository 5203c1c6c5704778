"""Launches the split attention kernels: one per span of 256 positions, one that merges spans."""

from math import gcd
from typing import Final, NamedTuple

import numpy as np

from sharpi.device.launch import (
    Argument,
    Kernel,
    Launch,
    Scalar,
    Span,
    argument_indices,
    flat,
    is_same_address,
    named,
)
from sharpi.ops.cuda.launchers.attention import tiled_attention
from sharpi.ops.cuda.launchers.attention.heads import (
    NO_GROUP,
    GroupArguments,
    KvCacheSlice,
    groups_of,
    is_interleaved,
)
from sharpi.ops.cuda.matvec_layout import whole_warps


class AttentionArguments(NamedTuple):
    """The arguments in the order of kernels/cuda/attention/attention.cu, which explains them.

    The fields from `done` on are for launches that are folded into attention: the merge of spans,
    and the preparation of heads. By default nothing is folded in.
    """

    queries: Argument
    keys: Argument
    values: Argument
    page_tables: Argument
    sequences: Argument
    positions: Argument
    scratch: Argument
    table_stride: Argument
    num_heads: Argument
    heads_each: Argument
    key_dim: Argument
    value_dim: Argument
    scale: Argument
    window: Argument
    is_chunked: Argument
    soft_cap: Argument
    done: Argument = None
    sinks: Argument = None
    out: Argument = None
    quantised: Argument = None
    planes: Argument = np.int32(0)
    hadamard: Argument = np.int32(0)
    q: GroupArguments = NO_GROUP
    k: GroupArguments = NO_GROUP
    v: GroupArguments = NO_GROUP
    interleaved: Argument = np.int32(0)
    row_floats: Argument = np.int32(0)

    def launch(
        self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared_bytes: int
    ) -> Launch:
        """Returns a launch with these arguments."""
        return Launch(
            kernel,
            grid,
            block,
            flat(self),
            writes=argument_indices(AttentionArguments, *self._written()),
            shared_bytes=shared_bytes,
        )

    def _written(self) -> list[str]:
        names = ["scratch"]
        if self.done is not None:
            names += ["done", "out", "quantised"]
        if self.q != NO_GROUP:
            names += ["keys", "values", "k.pages", "v.pages"]
        return names


SPAN_POSITIONS: Final = 256
MAX_VALUE_DIM: Final = 1024

_THREADS: Final = 256
_HEADS_AT_ONCE: Final = (1, 2, 4, 8)  # query heads per KV head; each has its own entry point
_BLOCK_COLUMNS: Final = 32
_MOST_SHARED: Final = 8 << 10  # bytes of prepared heads in shared memory


class MergeArguments(NamedTuple):
    """The arguments of the kernel that merges spans (attention_merge.cu)."""

    scratch: Argument
    positions: Argument
    sinks: Argument
    out: Argument
    quantised: Argument
    num_heads: Argument
    heads_each: Argument
    spans: Argument
    value_dim: Argument
    window: Argument
    is_chunked: Argument
    planes: Argument
    hadamard: Argument


def scratch_bytes(*, tokens: int, num_heads: int, value_dim: int, max_positions: int) -> int:
    """Returns the bytes of the argument `scratch` of `attention`.

    For each token, head and span it has two floats and value_dim partial sums.
    """
    return 4 * tokens * num_heads * _spans(max_positions) * (2 + value_dim)


def attention(
    q: Span,
    keys: Span,
    values: Span | None,
    out: Span | None,
    quantised: Span | None,
    scratch: Span,
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
    planes: int,
    max_positions: int,
    hadamard: int = 0,
    in_tiles: bool = False,
) -> tuple[Launch, Launch]:
    """Computes softmax(scale * q k) v of q (T, num_heads, key_dim): (T, num_heads * value_dim).

    The result is written as floats to `out` and/or quantised to `quantised` (see `quantise`).
    `keys` and `values` are a layer's pages (kernels/cuda/attention/kv_cache.cuh), in which the keys
    and values of these tokens are already stored. Without `values`, the first value_dim numbers of
    a key are its value. Positions of `cache_slice` are below max_positions. A `window` of 0 means
    none; with `is_chunked`, windows start at multiples of their size. A `soft_cap` of 0 means no
    cap. `sinks` (num_heads,) add one more score to each softmax denominator. `hadamard` is the
    block size of a Hadamard transform of the values, which is undone; 0 for none. Dims are even,
    and multiples of 32 for all types but f16; value_dim is at most 1024. With `in_tiles`, tensor
    cores compute attention, for the dims that `tiled_attention` supports.
    """
    spans, group = _spans(max_positions), num_heads // num_kv_heads
    form = (
        _tiled(cache_slice, group, key_dim, value_dim) if in_tiles else _plain(cache_slice, group)
    )
    part = AttentionArguments(
        *(
            q,
            keys,
            values,
            cache_slice.page_tables,
            cache_slice.sequences,
            cache_slice.positions,
            scratch,
        ),
        *(np.int32(cache_slice.table_stride), np.int32(num_heads), np.int32(form.heads_each)),
        *(np.int32(key_dim), np.int32(value_dim)),
        *(np.float32(scale), np.int32(window), np.int32(is_chunked), np.float32(soft_cap)),
    ).launch(form.kernel, (spans * form.tiles, num_kv_heads, tokens), _THREADS, form.shared_bytes)
    heads_merged = 1 if quantised is None else _BLOCK_COLUMNS // gcd(value_dim, _BLOCK_COLUMNS)
    merge = Launch(
        Kernel("attention_merge", "attention_merge"),
        grid=(num_heads // heads_merged, tokens, 1),
        block=whole_warps(heads_merged * value_dim, _THREADS),
        arguments=MergeArguments(
            *(scratch, cache_slice.positions, sinks, out, quantised),
            *(np.int32(num_heads), np.int32(heads_merged), np.int32(spans)),
            *(np.int32(value_dim), np.int32(window), np.int32(is_chunked), np.int32(planes)),
            np.int32(hadamard),
        ),
        writes=argument_indices(MergeArguments, "scratch", "out", "quantised"),
    )
    return part, merge


class _Form(NamedTuple):
    """A kernel, and how it splits the query heads that share a KV head."""

    kernel: Kernel
    tiles: int
    heads_each: int
    shared_bytes: int = 0


def _plain(cache_slice: KvCacheSlice, group: int) -> _Form:
    tiles = -(-group // _HEADS_AT_ONCE[-1])
    heads_each = -(-group // tiles)
    size = min(heads for heads in _HEADS_AT_ONCE if heads >= heads_each)
    kernel = tiled_attention.kernel_of("attention", "attention_heads", size, cache_slice.types)
    return _Form(kernel, tiles, heads_each)


def _tiled(cache_slice: KvCacheSlice, group: int, key_dim: int, value_dim: int) -> _Form:
    tiles = -(-group // tiled_attention.ROWS)
    size = tiled_attention.variant(value_dim)
    types = cache_slice.types
    kernel = tiled_attention.kernel_of("split_attention", "split_attention_", size, types)
    return _Form(kernel, tiles, -(-group // tiles), tiled_attention.shared_bytes(key_dim))


def _spans(max_positions: int) -> int:
    return -(-max_positions // SPAN_POSITIONS)


def with_merge(part: Launch, merge: Launch, counters: Span) -> Launch | None:
    """Returns one launch that replaces `part` and `merge`, the two launches of `attention`.

    `counters` are int32 zeros, one for each KV head of each token. Returns None if they are too
    few, if the launches do not belong together, or if results are quantised and a quant block of 32
    would span two KV heads.
    """
    given = named(AttentionArguments, part.arguments)
    tokens, num_kv_heads = part.grid[2], part.grid[1]
    merged = named(MergeArguments, merge.arguments)
    columns = _number(given.num_heads) // num_kv_heads * _number(given.value_dim)
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
    return both.launch(part.kernel, part.grid, part.block, part.shared_bytes)


def with_heads(heads: Launch, part: Launch) -> Launch | None:
    """Returns one launch that replaces `heads` and `part`, or None if no kernel can do both.

    `heads` is a launch of `heads.heads`, `part` the first launch of `attention`. In the new launch,
    each block of attention first prepares the queries that it reads. So there must be one block per
    KV head and span, and `heads` must prepare only the inputs of this attention.
    """
    given = named(AttentionArguments, part.arguments)
    num_heads, heads_each = _number(given.num_heads), _number(given.heads_each)
    key_dim, value_dim = _number(given.key_dim), _number(given.value_dim)
    groups = _by_use(heads, given)
    rows_bytes = 4 * (heads_each + 2) * key_dim
    fits = rows_bytes <= _MOST_SHARED
    if groups is None or heads_each * part.grid[1] != num_heads or value_dim > key_dim or not fits:
        return None
    q, k, v = groups
    interleaved = is_interleaved(heads)
    both = given._replace(q=q, k=k, v=v, interleaved=interleaved, row_floats=np.int32(key_dim))
    return both.launch(part.kernel, part.grid, part.block, part.shared_bytes + rows_bytes)


def _by_use(heads: Launch, given: AttentionArguments) -> list[GroupArguments] | None:
    """Returns the groups of a launch of `heads` in the order queries, keys, values.

    NO_GROUP stands for missing keys or values. Returns None if the launch has no queries, or has a
    group that is none of the three.
    """
    found = [NO_GROUP] * 3
    for group in groups_of(heads):
        if group.pages is None and is_same_address(group.x, given.queries):
            found[0] = group
        elif is_same_address(group.pages, given.keys):
            found[1] = group
        elif is_same_address(group.pages, given.values):
            found[2] = group
        else:
            return None
    return None if found[0] == NO_GROUP else found


def _number(argument: Argument) -> int:
    assert isinstance(argument, Scalar)
    return int(argument)
