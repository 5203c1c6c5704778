"""Launches the kernels of recurrent layers that compute a sequence's tokens in order."""

from typing import Final, NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.ops.recurrent import ConvolutionShape, DeltaNetShape, Mamba2Shape, whole_vectors

MAX_KEYS: Final = 1024  # the most keys of a head's state; a thread holds an eighth of them
_THREADS: Final = 256
_TILE: Final = 32  # values of a head per block
_KEYS_HELD: Final = (16, 32, 128)  # keys per thread; each has its own entry point
_WARPS: Final = _THREADS // 32
_TOKENS_OF_THREAD: Final = 16  # tokens that one thread of a convolution computes


class StateSlice(NamedTuple):
    """The states of a layer for the sequences of a step."""

    memory: Span  # floats (states, stride)
    state: Span  # int32 (sequences,), the index of each sequence's state
    positions: Span  # int32 (T,); a sequence that begins at 0 starts from a state of zeros
    stride: int  # floats of a state
    offset: int  # where the layer begins within a state, in floats
    # int32 (sequences + 1,): the first token of each sequence, then T; None for one sequence.
    starts: Span | None = None
    num_sequences: int = 1
    # int32 (T,): the index of the state that each token leaves behind, so that rejected drafts
    # can be taken back. It is -1 for tokens of a sequence without drafts, None if none has any.
    after: Span | None = None

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel arguments that describe the states, in the kernels' order."""
        return (
            *(self.memory, self.state, self.positions, self.starts, self.after),
            *(np.int64(self.stride), np.int64(self.offset)),
        )


def convolve(
    x: Span,
    weight: Span,
    bias: Span | None,
    out: Span,
    state_slice: StateSlice,
    *,
    shape: ConvolutionShape,
    tokens: int,
    silu: bool,
) -> Launch:
    """Computes the causal convolution of x (T, channels) to out (T, channels); not in place.

    weight is (kernel, channels), bias (channels,), the state (kernel - 1, channels). The
    convolution's kernel size is at most 16.
    """
    longest = tokens - (state_slice.num_sequences - 1)
    return Launch(
        Kernel("convolve", "convolve"),
        grid=(
            -(-shape.channels // _THREADS),
            -(-longest // _TOKENS_OF_THREAD),
            state_slice.num_sequences,
        ),
        block=_THREADS,
        arguments=(
            *(x, weight, bias, out, *state_slice.arguments),
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
    state_slice: StateSlice,
    *,
    shape: DeltaNetShape,
    tokens: int,
) -> Launch:
    """Applies the gated delta rule (see Ops.delta_net) to out (T, value heads * value_dim).

    qkv is (T, width), beta and alpha are (T, value heads), a and dt_bias (value heads,). The key
    size is at most 1024.
    """
    return Launch(
        _kernel("delta_net", _keys_held(shape.key_dim)),
        grid=(-(-shape.value_dim // _TILE), shape.num_value_heads, state_slice.num_sequences),
        block=_THREADS,
        arguments=(
            *(qkv, beta, alpha, a, dt_bias, out, *state_slice.arguments),
            *delta_net_sizes(shape, tokens),
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
    state_slice: StateSlice,
    *,
    shape: Mamba2Shape,
    tokens: int,
) -> Launch:
    """Computes the state space step (see Ops.mamba2) to out (T, heads * head_dim).

    xbc is (T, width), dt (T, heads), and a, skip and dt_bias are (heads,). The state size is at
    most 1024.
    """
    return Launch(
        _kernel("mamba2", _keys_held(shape.state_size)),
        grid=(-(-shape.head_dim // _TILE), shape.num_heads, state_slice.num_sequences),
        block=_THREADS,
        arguments=(
            *(xbc, dt, a, skip, dt_bias, out, *state_slice.arguments),
            *mamba2_sizes(shape, tokens),
            np.int32(whole_vectors(shape.head_dim)),
        ),
        writes=frozenset({5, 6}),
    )


def delta_net_sizes(shape: DeltaNetShape, tokens: int) -> tuple[Argument, ...]:
    """Returns the sizes that kernels of the delta rule take, tokens first."""
    return (
        *(np.int32(tokens), np.int32(shape.num_key_heads), np.int32(shape.num_value_heads)),
        *(np.int32(shape.key_dim), np.int32(shape.value_dim)),
    )


def mamba2_sizes(shape: Mamba2Shape, tokens: int) -> tuple[Argument, ...]:
    """Returns the sizes that kernels of Mamba-2 take, tokens first."""
    return (
        *(np.int32(tokens), np.int32(shape.num_heads), np.int32(shape.num_groups)),
        *(np.int32(shape.head_dim), np.int32(shape.state_size)),
    )


def _kernel(file: str, keys_held: int) -> Kernel:
    return Kernel(file, f"{file}_{keys_held}", size=keys_held)


def _keys_held(keys: int) -> int:
    return next(held for held in _KEYS_HELD if keys <= held * _WARPS)
