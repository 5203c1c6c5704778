"""Starts of what carries states from token to token: each sequence's are walked in their order."""

from typing import Final, NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.ops.recurrent import ConvolutionShape, DeltaNetShape, Mamba2Shape, whole_vectors

MAX_KEYS: Final = 1024  # of a matrix state: a thread holds an eighth
_THREADS: Final = 256
_TILE: Final = 32  # values of a head that a block has
_KEYS_HELD: Final = (16, 32, 128)  # by a thread; the kernels' entry points
_WARPS: Final = _THREADS // 32
_TOKENS_OF_THREAD: Final = 16  # of a convolution


class StateSlice(NamedTuple):
    """States (any, stride) floats, of which int32 `state` (sequences,) says whose is which.

    `offset` within it. positions int32 (T,): where a sequence's first is 0, the state is zeros,
    whatever the memory holds. starts int32 (sequences + 1,): whose tokens begin where, and where
    all end; None where one sequence has all.
    """

    memory: Span
    state: Span
    positions: Span
    stride: int
    offset: int
    starts: Span | None = None
    num_sequences: int = 1

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """As the kernels take them."""
        return (
            *(self.memory, self.state, self.positions, self.starts),
            *(np.int64(self.stride), np.int64(self.offset)),
        )


def convolve(
    x: Span,
    weight: Span,
    bias: Span | None,
    out: Span,
    place: StateSlice,
    *,
    shape: ConvolutionShape,
    tokens: int,
    silu: bool,
) -> Launch:
    """out (T, channels) of x (T, channels), weight (kernel, channels), bias (channels,).

    Its state is (kernel - 1, channels). The kernel has at most 16 tokens; `out` is not x.
    """
    longest = tokens - (place.num_sequences - 1)
    return Launch(
        Kernel("convolve", "convolve"),
        grid=(
            -(-shape.channels // _THREADS),
            -(-longest // _TOKENS_OF_THREAD),
            place.num_sequences,
        ),
        block=_THREADS,
        arguments=(
            *(x, weight, bias, out, *place.arguments),
            *(np.int32(tokens), np.int32(shape.channels), np.int32(shape.kernel), np.int32(silu)),
        ),
        writes=frozenset({3, 4}),
    )


def delta_net(
    qkv: Span,
    beta: Span,
    alpha: Span,
    a: Span,
    dt_bias: Span,
    out: Span,
    place: StateSlice,
    *,
    shape: DeltaNetShape,
    tokens: int,
) -> Launch:
    """out (T, value heads * value_dim) of qkv (T, width), beta and alpha (T, value heads).

    a, dt_bias (value heads,). At most 1024 key dims.
    """
    return Launch(
        Kernel("delta_net", f"delta_net_{_keys_held(shape.key_dim)}"),
        grid=(-(-shape.value_dim // _TILE), shape.num_value_heads, place.num_sequences),
        block=_THREADS,
        arguments=(
            *(qkv, beta, alpha, a, dt_bias, out, *place.arguments),
            *(np.int32(tokens), np.int32(shape.num_key_heads), np.int32(shape.num_value_heads)),
            *(np.int32(shape.key_dim), np.int32(shape.value_dim)),
            *(np.int32(whole_vectors(shape.value_dim)), np.int32(shape.head_order == "tiled")),
            np.float32(shape.epsilon),
        ),
        writes=frozenset({5, 6}),
    )


def mamba2(
    xbc: Span,
    dt: Span,
    a: Span,
    skip: Span,
    dt_bias: Span,
    out: Span,
    place: StateSlice,
    *,
    shape: Mamba2Shape,
    tokens: int,
) -> Launch:
    """out (T, heads * head_dim) of xbc (T, width) and dt (T, heads).

    a, skip, dt_bias (heads,). A state has at most 1024 keys.
    """
    return Launch(
        Kernel("mamba2", f"mamba2_{_keys_held(shape.state_size)}"),
        grid=(-(-shape.head_dim // _TILE), shape.num_heads, place.num_sequences),
        block=_THREADS,
        arguments=(
            *(xbc, dt, a, skip, dt_bias, out, *place.arguments),
            *(np.int32(tokens), np.int32(shape.num_heads), np.int32(shape.num_groups)),
            *(np.int32(shape.head_dim), np.int32(shape.state_size)),
            np.int32(whole_vectors(shape.head_dim)),
        ),
        writes=frozenset({5, 6}),
    )


def _keys_held(keys: int) -> int:
    return next(held for held in _KEYS_HELD if keys <= held * _WARPS)
