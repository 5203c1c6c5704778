"""Starts of what is done to every head before attention: norm, rotation, KV cache."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

KvType = Literal["f16", "q8_0"]

_HEADS_EACH: Final = 4
_PLACES: Final[dict[KvType | None, int]] = {None: 0, "f16": 1, "q8_0": 2}


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMS norm of each head; weight (head_dim,), or `per_head` (num_heads, head_dim)."""

    weight: Span
    epsilon: float
    per_head: bool = False


@dataclass(frozen=True, slots=True)
class HeadRope:
    """Rotation of each head's first 2 * half values by angles (T, 2, half).

    Pairs are (i, i + half), or (2i, 2i + 1) where `interleaved`.
    """

    angles: Span
    half: int
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class CacheTarget:
    """One layer's keys or values in the KV cache (kernels/cuda/kv_cache.cuh), and where in it.

    page_table int32: the page of positions 0..63, 64..127, ...; positions int32 (T,).
    """

    pages: Span
    page_table: Span
    positions: Span
    kv_type: KvType = "f16"


def heads(
    x: Span,
    *,
    tokens: int,
    num_heads: int,
    head_dim: int,
    norm: HeadNorm | None = None,
    rope: HeadRope | None = None,
    cache: CacheTarget | None = None,
) -> Launch:
    """Norms, then rotates each head of x (T, num_heads, head_dim): in place, or into the cache.

    With a cache, x stays as it is; head_dim is even, and a multiple of 32 for q8_0.
    """
    weight_stride = head_dim if norm is not None and norm.per_head else 0
    return Launch(
        Kernel("heads", "heads"),
        grid=(-(-tokens * num_heads // _HEADS_EACH), 1, 1),
        block=32 * _HEADS_EACH,
        arguments=(
            *(x, norm.weight if norm else None, rope.angles if rope else None),
            *((cache.pages, cache.page_table, cache.positions) if cache else (None, None, None)),
            *(np.int32(tokens), np.int32(num_heads), np.int32(head_dim), np.int32(weight_stride)),
            *(np.int32(rope.half if rope else 0), np.int32(rope is not None and rope.interleaved)),
            np.float32(norm.epsilon if norm else 0),
            np.int32(_PLACES[cache.kv_type if cache else None]),
        ),
        writes=frozenset({3} if cache else {0}),
        shared_bytes=_HEADS_EACH * head_dim * 4,
    )
