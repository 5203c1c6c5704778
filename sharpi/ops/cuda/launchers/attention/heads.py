"""Launches the kernel that applies norm and RoPE to heads, and stores them in the KV cache."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sharpi.device.launch import Launch, Span, is_same_address, named
from sharpi.ops.attention_shape import HeadGate
from sharpi.ops.cpu.kv_cache import KV_FORMATS
from sharpi.ops.cuda.launchers.elementwise import JoinArguments
from sharpi.settings import F16_TYPES, KvType, KvTypes

_HEADS_EACH: Final = 4
_MAX_GROUPS: Final = 3


class GroupArguments(NamedTuple):
    """The arguments of a group of heads (HEAD_GROUP of heads.cuh); the default is no group."""

    x: Span | None = None
    weight: Span | None = None
    angles: Span | None = None
    pages: Span | None = None
    num_heads: int = 0
    head_dim: int = 0
    weight_stride: int = 0
    half: int = 0
    epsilon: float = 0.0
    hadamard: int = 0
    kv_type: int = 0

    @property
    def written(self) -> Span | None:
        """The memory of the result."""
        return self.x if self.pages is None else self.pages


NO_GROUP: Final = GroupArguments()


class HeadsArguments(NamedTuple):
    """The arguments of the kernel `heads`."""

    a: GroupArguments
    b: GroupArguments
    c: GroupArguments
    page_tables: Span | None
    sequences: Span | None
    positions: Span | None
    table_stride: int
    tokens: int
    interleaved: int
    row_floats: int


class HeadNorm(Struct, frozen=True):
    """The RMS norm of each head."""

    weight: Span  # (head_dim,), or `per_head` (num_heads, head_dim)
    epsilon: float
    per_head: bool = False


class HeadRope(Struct, frozen=True):
    """A rotary embedding of the first 2 * half numbers of each head."""

    angles: Span  # (T, 2, half), see `rope_angles`
    half: int
    interleaved: bool = False  # pairs are (2i, 2i + 1) instead of (i, i + half)


class HeadGroup(Struct, frozen=True):
    """Queries, keys or values on which norm, RoPE and Hadamard transform are applied.

    The result is written in place, or to the KV cache.
    """

    x: Span  # (T, num_heads, head_dim)
    num_heads: int
    head_dim: int
    norm: HeadNorm | None = None
    rope: HeadRope | None = None
    pages: Span | None = None  # one layer's keys or values, to which the result is written
    hadamard: int = 0  # the size of the blocks of a Hadamard transform; 0 for none
    kv_type: KvType = "f16"  # the type of the pages


class KvCacheSlice(Struct, frozen=True):
    """The pages and positions of a step's tokens (kernels/cuda/attention/kv_cache.cuh)."""

    page_tables: Span  # int32 (sequences, table_stride), the pages of positions 0..63, 64..127, ...
    positions: Span  # int32 (T,)
    types: KvTypes = F16_TYPES
    sequences: Span | None = None  # int32 (T,), the sequence of each token; None for one sequence
    table_stride: int = 0


def heads(
    groups: Sequence[HeadGroup], *, tokens: int, cache_slice: KvCacheSlice | None = None
) -> Launch:
    """Applies norm, RoPE and Hadamard transform to one to three groups of heads.

    All groups pair numbers for RoPE in the same way. For heads that are stored in the KV cache,
    head_dim is even, and a multiple of 32 for all types but f16.
    """
    row = max(group.head_dim for group in groups)
    c = cache_slice
    count = tokens * sum(group.num_heads for group in groups)
    interleaved = any(group.rope is not None and group.rope.interleaved for group in groups)
    first, second, third = [*map(_group, groups), *[NO_GROUP] * (_MAX_GROUPS - len(groups))]
    return Launch.of(
        "heads",
        (-(-count // _HEADS_EACH),),
        32 * _HEADS_EACH,
        HeadsArguments(
            *(first, second, third),
            c.page_tables if c else None,
            c.sequences if c else None,
            c.positions if c else None,
            *(c.table_stride if c else 0, tokens, interleaved, row),
        ),
        [group.written for group in (first, second, third)],
        shared_bytes=_HEADS_EACH * row * 4,
    )


def _group(group: HeadGroup) -> GroupArguments:
    norm, rope = group.norm, group.rope
    return GroupArguments(
        x=group.x,
        weight=norm.weight if norm else None,
        angles=rope.angles if rope else None,
        pages=group.pages,
        num_heads=group.num_heads,
        head_dim=group.head_dim,
        weight_stride=group.head_dim if norm and norm.per_head else 0,
        half=rope.half if rope else 0,
        epsilon=norm.epsilon if norm else 0.0,
        hadamard=group.hadamard,
        kv_type=KV_FORMATS[group.kv_type].code,
    )


_BLOCK = 128


class JoinHeadsArguments(NamedTuple):
    """The arguments of join_heads.cu."""

    heads: GroupArguments
    first: Span
    out: Span
    width: int
    interleaved: int


def with_join(heads: Launch, join: Launch) -> Launch | None:
    """Returns one launch for `heads` in place and for a `join` with each of them behind a run.

    Returns None if there are other heads, or if they are not the second part of `join`.
    """
    given = named(HeadsArguments, heads.arguments)
    following = named(JoinArguments, join.arguments)
    group, first, second = given.a, following.first, following.second
    is_alone = given.b == NO_GROUP and group.pages is None
    is_second = is_same_address(group.x, second) and not is_same_address(group.x, first)
    if not (is_alone and is_second and group.head_dim == following.second_width):
        return None
    return Launch.of(
        "join_heads",
        (given.tokens * group.num_heads,),
        _BLOCK,
        JoinHeadsArguments(group, first, following.out, following.width, given.interleaved),
        [group.x, following.out],
        shared_bytes=4 * group.head_dim,
    )


_ANGLE_THREADS: Final = 128


def rope_angles(
    frequencies: Span, positions: Span, angles: Span, *, tokens: int, half: int, scale: float
) -> Launch:
    """Computes angles (T, 2, half): cosines, then sines, of position * frequency, times `scale`.

    frequencies are (half,), positions int32 (T,).
    """
    grid = (tokens, -(-half // _ANGLE_THREADS))
    arguments = (frequencies, positions, angles, half, scale)
    return Launch.of("rope_angles", grid, _ANGLE_THREADS, arguments, [angles])


_THREADS = 256


def gate_heads(
    x: Span, gate: Span, *, tokens: int, width: int, num_gates: int, activation: HeadGate
) -> Launch:
    """Multiplies x (T, width) in place by act(gate) (T, num_gates).

    A row of x has `num_gates` parts of equal width, each with one gate.
    """
    arguments = (x, gate, width, width // num_gates, activation is HeadGate.SOFTPLUS)
    return Launch.of("gate_heads", (-(-width // _THREADS), tokens), _THREADS, arguments, [x])


def scale_by_position(
    x: Span, positions: Span, *, tokens: int, width: int, interval: int, rate: float, offset: int
) -> Launch:
    """Multiplies x (T, width) by 1 + rate * ln(1 + floor((position + offset) / interval))."""
    arguments = (x, positions, width, interval, rate, offset)
    grid = (-(-width // _THREADS), tokens)
    return Launch.of("scale_by_position", grid, _THREADS, arguments, [x])
