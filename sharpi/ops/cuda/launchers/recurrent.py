"""Launches the kernels of recurrent layers that compute a sequence's tokens in order."""

from typing import Any, Final, NamedTuple

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
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
    def arguments(self) -> tuple[Any, ...]:
        """The kernel arguments that describe the states, in the kernels' order."""
        sizes = np.int64(self.stride), np.int64(self.offset)
        return (self.memory, self.state, self.positions, self.starts, self.after, *sizes)


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
    rows, columns = -(-longest // _TOKENS_OF_THREAD), -(-shape.channels // _THREADS)
    return Launch.of(
        "convolve",
        (columns, rows, state_slice.num_sequences),
        _THREADS,
        (
            *(x, weight, bias, out, *state_slice.arguments),
            *(tokens, shape.channels, shape.kernel, silu),
        ),
        [out, state_slice.memory],
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
    floor: float = 0.0,
) -> Launch:
    """Applies the gated delta rule (see Ops.delta_net) to out (T, value heads * value_dim).

    qkv is (T, width), beta and alpha are (T, value heads), a and dt_bias (value heads,). If keys
    decay by themselves, alpha and dt_bias have key_dim values for each head. The key size is at
    most 1024.
    """
    sizes = (shape.num_key_heads, shape.num_value_heads, shape.key_dim, shape.value_dim)
    return Launch.of(
        _kernel("kimi_delta" if shape.decays_by_key else "delta_net", shape.key_dim),
        (-(-shape.value_dim // _TILE), shape.num_value_heads, state_slice.num_sequences),
        _THREADS,
        (
            *(qkv, beta, alpha, a, dt_bias, out, *state_slice.arguments, tokens, *sizes),
            *(whole_vectors(shape.value_dim), shape.head_order == "tiled", shape.epsilon),
            *((floor,) if shape.decays_by_key else ()),
        ),
        [out, state_slice.memory],
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
    sizes = (shape.num_heads, shape.num_groups, shape.head_dim, shape.state_size)
    return Launch.of(
        _kernel("mamba2", shape.state_size),
        (-(-shape.head_dim // _TILE), shape.num_heads, state_slice.num_sequences),
        _THREADS,
        (
            *(xbc, dt, a, skip, dt_bias, out, *state_slice.arguments, tokens, *sizes),
            whole_vectors(shape.head_dim),
        ),
        [out, state_slice.memory],
    )


def _kernel(file: str, keys: int) -> Kernel:
    held = next(held for held in _KEYS_HELD if keys <= held * _WARPS)
    return Kernel(file, f"{file}_{held}", size=held)
