"""Launches the kernel that applies norm and RoPE to heads, and stores them in the KV cache."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

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
from sharpi.ops.cpu.kv_cache import KV_FORMATS
from sharpi.ops.cuda.launchers.elementwise import JoinArguments
from sharpi.ops.interface import HeadGate
from sharpi.settings import F16_TYPES, KvType, KvTypes

_HEADS_EACH: Final = 4
_MAX_GROUPS: Final = 3


class GroupArguments(NamedTuple):
    """The arguments of a group of heads (HEAD_GROUP of heads.cuh); the default is no group."""

    x: Argument = None
    weight: Argument = None
    angles: Argument = None
    pages: Argument = None
    num_heads: Argument = np.int32(0)
    head_dim: Argument = np.int32(0)
    weight_stride: Argument = np.int32(0)
    half: Argument = np.int32(0)
    epsilon: Argument = np.float32(0)
    hadamard: Argument = np.int32(0)
    kv_type: Argument = np.int32(0)


NO_GROUP: Final = GroupArguments()


class HeadsArguments(NamedTuple):
    """The arguments of the kernel `heads`."""

    a: GroupArguments
    b: GroupArguments
    c: GroupArguments
    page_tables: Argument
    sequences: Argument
    positions: Argument
    table_stride: Argument
    tokens: Argument
    interleaved: Argument
    row_floats: Argument


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
    count = tokens * sum(group.num_heads for group in groups)
    is_interleaved = any(group.rope is not None and group.rope.interleaved for group in groups)
    first, second, third = [*map(_group, groups), *[NO_GROUP] * (_MAX_GROUPS - len(groups))]
    return Launch(
        Kernel("heads", "heads"),
        grid=(-(-count // _HEADS_EACH), 1, 1),
        block=32 * _HEADS_EACH,
        arguments=flat(
            HeadsArguments(
                *(first, second, third),
                page_tables=cache_slice.page_tables if cache_slice else None,
                sequences=cache_slice.sequences if cache_slice else None,
                positions=cache_slice.positions if cache_slice else None,
                table_stride=np.int32(cache_slice.table_stride if cache_slice else 0),
                tokens=np.int32(tokens),
                interleaved=np.int32(is_interleaved),
                row_floats=np.int32(row),
            )
        ),
        writes=argument_indices(
            HeadsArguments,
            *(
                f"{name}.{'x' if group.pages is None else 'pages'}"
                for name, group in zip("abc", groups, strict=False)
            ),
        ),
        shared_bytes=_HEADS_EACH * row * 4,
    )


def _group(group: HeadGroup) -> GroupArguments:
    norm, rope = group.norm, group.rope
    stride = group.head_dim if norm is not None and norm.per_head else 0
    return GroupArguments(
        x=group.x,
        weight=norm.weight if norm else None,
        angles=rope.angles if rope else None,
        pages=group.pages,
        num_heads=np.int32(group.num_heads),
        head_dim=np.int32(group.head_dim),
        weight_stride=np.int32(stride),
        half=np.int32(rope.half if rope else 0),
        epsilon=np.float32(norm.epsilon if norm else 0),
        hadamard=np.int32(group.hadamard),
        kv_type=np.int32(KV_FORMATS[group.kv_type].code),
    )


def groups_of(launch: Launch) -> list[GroupArguments]:
    """Returns the groups of a launch of `heads`."""
    given = named(HeadsArguments, launch.arguments)
    return [group for group in (given.a, given.b, given.c) if group != NO_GROUP]


def is_interleaved(launch: Launch) -> Argument:
    """Returns the argument `interleaved` of a launch of `heads`: 1 for RoPE pairs (2i, 2i + 1)."""
    return named(HeadsArguments, launch.arguments).interleaved


_BLOCK = 128


class JoinHeadsArguments(NamedTuple):
    """The arguments of join_heads.cu."""

    heads: GroupArguments
    first: Argument
    out: Argument
    width: Argument
    interleaved: Argument


def with_join(heads: Launch, join: Launch) -> Launch | None:
    """Returns one launch for `heads` in place and for a `join` with each of them behind a run.

    Returns None if there are other heads, or if they are not the second part of `join`.
    """
    given = named(HeadsArguments, heads.arguments)
    following = JoinArguments(*join.arguments)
    group = given.a
    is_alone = given.b == NO_GROUP and group.pages is None
    is_second = is_same_address(group.x, following.second) and not is_same_address(
        group.x, following.first
    )
    if not (is_alone and is_second and group.head_dim == following.second_width):
        return None
    tokens, num_heads, dim = given.tokens, group.num_heads, group.head_dim
    assert isinstance(tokens, np.int32)
    assert isinstance(num_heads, np.int32)
    assert isinstance(dim, np.int32)
    return Launch(
        Kernel("join_heads", "join_heads"),
        grid=(int(tokens * num_heads), 1, 1),
        block=_BLOCK,
        arguments=flat(
            JoinHeadsArguments(
                *(group, following.first, following.out, following.width, given.interleaved)
            )
        ),
        writes=argument_indices(JoinHeadsArguments, "heads.x", "out"),
        shared_bytes=4 * int(dim),
    )


_ANGLE_THREADS: Final = 128


def rope_angles(
    frequencies: Span, positions: Span, angles: Span, *, tokens: int, half: int, scale: float
) -> Launch:
    """Computes angles (T, 2, half): cosines, then sines, of position * frequency, times `scale`.

    frequencies are (half,), positions int32 (T,).
    """
    return Launch(
        Kernel("rope_angles", "rope_angles"),
        grid=(tokens, -(-half // _ANGLE_THREADS), 1),
        block=_ANGLE_THREADS,
        arguments=(frequencies, positions, angles, np.int32(half), np.float32(scale)),
        writes=frozenset({2}),
    )


_THREADS = 256


def gate_heads(
    x: Span, gate: Span, *, tokens: int, width: int, num_gates: int, activation: HeadGate
) -> Launch:
    """Multiplies x (T, width) in place by act(gate) (T, num_gates).

    A row of x has `num_gates` parts of equal width, each with one gate.
    """
    softplus = activation is HeadGate.SOFTPLUS
    return Launch(
        Kernel("gate_heads", "gate_heads"),
        grid=(-(-width // _THREADS), tokens, 1),
        block=_THREADS,
        arguments=(x, gate, np.int32(width), np.int32(width // num_gates), np.int32(softplus)),
        writes=frozenset({0}),
    )


def scale_by_position(
    x: Span, positions: Span, *, tokens: int, width: int, interval: int, rate: float, offset: int
) -> Launch:
    """Multiplies x (T, width) by 1 + rate * ln(1 + floor((position + offset) / interval))."""
    return Launch(
        Kernel("scale_by_position", "scale_by_position"),
        grid=(-(-width // _THREADS), tokens, 1),
        block=_THREADS,
        arguments=(
            x,
            positions,
            np.int32(width),
            np.int32(interval),
            np.float32(rate),
            np.int32(offset),
        ),
        writes=frozenset({0}),
    )
