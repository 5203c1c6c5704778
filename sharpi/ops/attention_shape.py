"""The shapes of attention layers, of their indexers, and of rotary embeddings."""

from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

X = TypeVar("X")  # a value with one row per token, as in `Ops`


class HeadGate(IntEnum):
    """The activation of gates after attention; the native library uses the same numbers."""

    SIGMOID = 0
    SOFTPLUS = 1


class RopeTable(Struct, frozen=True):
    """The frequencies of a rotary embedding; an angle is position * frequency."""

    frequencies: npt.NDArray[np.float32]  # (half,), in radians per position
    scale: float = 1.0  # multiplies cosines and sines


class IndexShape(Struct, frozen=True):
    """The sizes of an indexer, which chooses the positions that a token's attention reads.

    It chooses `num_chosen` blocks of `block` positions, for all heads of attention together or each
    of its heads for an equal share of the KV heads. A token that sees no more blocks reads all.
    """

    num_heads: int
    key_dim: int
    scale: float
    num_chosen: int
    block: int = 1
    num_local: int = 0  # so many of a token's last blocks are always chosen
    is_joint: bool = True  # all heads choose together

    @property
    def num_choices(self) -> int:
        return 1 if self.is_joint else self.num_heads

    @property
    def num_positions(self) -> int:
        """The most positions that a token's attention reads."""
        return self.num_chosen * self.block


class Chosen(Struct, Generic[X], frozen=True):
    """The choice of an indexer: each token's blocks in ascending order, for each choosing head."""

    shape: IndexShape
    blocks: X


class AttentionShape(Struct, frozen=True):
    """The sizes and options of one layer's attention."""

    layer: int  # the layer whose part of the KV cache is used
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    window: int = 0  # positions that a token attends to, including itself; 0 for all
    soft_cap: float = 0.0  # soft cap of the scores, 0 for none
    is_chunked: bool = False  # windows start at multiples of their size (chunked attention)
    values_in_keys: bool = False  # the first `value_dim` values of a key are its value
    index: IndexShape | None = None  # of the layer's own indexer, whose keys are in the KV cache
    is_sparse: bool = False  # an indexer, the layer's own or an earlier one's, chooses positions
