"""Launches the kernels of recurrent layers that compute many tokens of a sequence in chunks."""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.launchers.recurrent import StateSlice, delta_net_sizes, mamba2_sizes
from sharpi.ops.recurrent import DeltaNetShape, Mamba2Shape, whole_vectors

CHUNK_TOKENS: Final = 32
# The most keys of a head's state for which every GPU has enough shared memory.
MAX_CHUNK_KEYS: Final = 128

_THREADS: Final = 256
_TILE: Final = 32  # values of a head per block
_KEYS_OF_TURN: Final = 32
_KEY_PADDING: Final = 4
_ROW_BYTES: Final = 288  # ChunkRow
_FLOAT: Final = 4


def supports_chunks(shape: DeltaNetShape | Mamba2Shape) -> bool:
    """Returns True if a head's state is small enough for the shared memory of the chunk kernels."""
    return _keys(shape) <= MAX_CHUNK_KEYS


def prepared_bytes(shape: DeltaNetShape | Mamba2Shape, tokens: int) -> int:
    """Returns the bytes of `prepared`, which the first launch writes for the second."""
    return _heads(shape) * _num_chunks(tokens) * CHUNK_TOKENS * _ROW_BYTES


def delta_net(
    qkv: Span,
    beta: Span,
    alpha: Span,
    a: Span,
    dt_bias: Span,
    out: Span,
    prepared: Span,
    state_slice: StateSlice,
    *,
    shape: DeltaNetShape,
    tokens: int,
) -> tuple[Launch, Launch]:
    """Computes `recurrent.delta_net` for one sequence in chunks of 32 tokens, in two launches.

    Results may differ from those of `recurrent.delta_net` by rounding.
    """
    sizes = delta_net_sizes(shape, tokens)
    tiled, stride = np.int32(shape.head_order == "tiled"), whole_vectors(shape.value_dim)
    rows = Launch(
        Kernel("delta_net_chunks", "delta_net_rows"),
        grid=(_num_chunks(tokens), shape.num_value_heads, 1),
        block=_THREADS,
        arguments=(
            *(qkv, beta, alpha, a, dt_bias, prepared),
            *(*sizes, tiled, np.float32(shape.epsilon)),
        ),
        writes=frozenset({5}),
        shared_bytes=_bytes_of_rows(shape),
    )
    chunks = Launch(
        Kernel("delta_net_chunks", "delta_net_chunks"),
        grid=(-(-shape.value_dim // _TILE), shape.num_value_heads, 1),
        block=_THREADS,
        arguments=(qkv, prepared, out, *state_slice.arguments, *sizes, np.int32(stride), tiled),
        writes=frozenset({2, 3}),
        shared_bytes=_bytes_of_pass(shape),
    )
    return rows, chunks


def mamba2(
    xbc: Span,
    dt: Span,
    a: Span,
    skip: Span,
    dt_bias: Span,
    out: Span,
    prepared: Span,
    state_slice: StateSlice,
    *,
    shape: Mamba2Shape,
    tokens: int,
) -> tuple[Launch, Launch]:
    """Computes `recurrent.mamba2` for one sequence in chunks of 32 tokens, in two launches.

    Results may differ from those of `recurrent.mamba2` by rounding.
    """
    sizes = mamba2_sizes(shape, tokens)
    rows = Launch(
        Kernel("mamba2_chunks", "mamba2_rows"),
        grid=(_num_chunks(tokens), shape.num_heads, 1),
        block=_THREADS,
        arguments=(xbc, dt, a, dt_bias, prepared, *sizes),
        writes=frozenset({4}),
        shared_bytes=_bytes_of_rows(shape),
    )
    chunks = Launch(
        Kernel("mamba2_chunks", "mamba2_chunks"),
        grid=(-(-shape.head_dim // _TILE), shape.num_heads, 1),
        block=_THREADS,
        arguments=(
            *(xbc, skip, prepared, out, *state_slice.arguments, *sizes),
            np.int32(whole_vectors(shape.head_dim)),
        ),
        writes=frozenset({3, 4}),
        shared_bytes=_bytes_of_pass(shape),
    )
    return rows, chunks


def _num_chunks(tokens: int) -> int:
    return -(-tokens // CHUNK_TOKENS)


def _keys(shape: DeltaNetShape | Mamba2Shape) -> int:
    return shape.key_dim if isinstance(shape, DeltaNetShape) else shape.state_size


def _heads(shape: DeltaNetShape | Mamba2Shape) -> int:
    return shape.num_value_heads if isinstance(shape, DeltaNetShape) else shape.num_heads


def _held(shape: DeltaNetShape | Mamba2Shape) -> int:
    return -(-_keys(shape) // _KEYS_OF_TURN) * _KEYS_OF_TURN


def _bytes_of_rows(shape: DeltaNetShape | Mamba2Shape) -> int:
    return 2 * CHUNK_TOKENS * (_held(shape) + _KEY_PADDING) * _FLOAT


def _bytes_of_pass(shape: DeltaNetShape | Mamba2Shape) -> int:
    """Returns the second launch's shared memory in bytes: ChunkMemory of chunk_pass.cuh."""
    held = _held(shape)
    floats = held * _TILE + 2 * CHUNK_TOKENS * held + CHUNK_TOKENS * _TILE
    return floats * _FLOAT + CHUNK_TOKENS * _ROW_BYTES
