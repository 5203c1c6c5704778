"""The shapes of recurrent layers and of their states.

Every state is float32. The state of a head is a matrix (keys, values), whose columns are padded to
a multiple of 16. It is stored as panels of 32 columns (the last may have 16), one after the other;
see kernels/cpu/vector/vector_ops.h.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_LANES = 16

HeadOrder: TypeAlias = Literal["grouped", "tiled"]


class DecayRates(Struct, frozen=True):
    """The parameters of each head's decay: e^(a * softplus(x + dt_bias)) for an input x.

    With a `floor` below 0 it is e^(floor * sigmoid(-a * (x + dt_bias))).
    """

    a: npt.NDArray[np.float32]  # (heads,), below 0
    dt_bias: npt.NDArray[np.float32]  # (heads,), or (heads * key_dim,) if each key decays by itself
    floor: float = 0.0


class ConvolutionShape(Struct, frozen=True):
    """A causal convolution of channels; its state is the last inputs (kernel - 1, channels)."""

    layer: int
    channels: int
    kernel: int

    @property
    def state_floats(self) -> int:
        return (self.kernel - 1) * self.channels

    @property
    def step_width(self) -> int:
        """The floats per token that a step needs for inputs and outputs."""
        return 2 * self.channels


class DeltaNetShape(Struct, frozen=True):
    """The shape of a gated delta net layer (arXiv 2412.06464), or of Kimi's (arXiv 2510.26692).

    Its state is a matrix (key_dim, value_dim) for each value head, stored in panels.
    """

    layer: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    # Value head h uses key head h // (value heads / key heads), or "tiled": h % key heads.
    head_order: HeadOrder = "grouped"
    epsilon: float = 1e-6  # epsilon of the norms of queries and keys
    decays_by_key: bool = False  # Kimi's: each key of a head's state has a decay of its own

    @property
    def width(self) -> int:
        """The width of a token's queries, keys and values together."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    @property
    def state_floats(self) -> int:
        return self.num_value_heads * self.key_dim * whole_vectors(self.value_dim)

    @property
    def step_width(self) -> int:
        """The floats per token for gate, output and rates, without those of the convolution."""
        rates = self.key_dim if self.decays_by_key else 1
        return self.num_value_heads * (3 * self.value_dim + 3 + rates)

    def key_head(self, value_head: int) -> int:
        """Returns the index of the key head that value head `value_head` uses."""
        if self.head_order == "tiled":
            return value_head % self.num_key_heads
        return value_head * self.num_key_heads // self.num_value_heads


class Mamba2Shape(Struct, frozen=True):
    """The shape of a Mamba-2 layer (arXiv 2405.21060).

    Its state is a matrix (state_size, head_dim) for each head, stored in panels. The heads of a
    group are adjacent and share B and C.
    """

    layer: int
    num_heads: int
    num_groups: int
    head_dim: int
    state_size: int

    @property
    def width(self) -> int:
        """The width of a token's inputs, B and C together."""
        return self.num_heads * self.head_dim + 2 * self.num_groups * self.state_size

    @property
    def state_floats(self) -> int:
        return self.num_heads * self.state_size * whole_vectors(self.head_dim)

    @property
    def step_width(self) -> int:
        """The floats per token for gate, output and rates, without those of the convolution."""
        return 3 * self.num_heads * self.head_dim + self.num_heads


RecurrentShape: TypeAlias = ConvolutionShape | DeltaNetShape | Mamba2Shape


def whole_vectors(values: int) -> int:
    """Rounds a number of values up to a multiple of 16."""
    return -(-values // _LANES) * _LANES


MAX_STATES = 4  # for one sequence: its current state, and snapshots of earlier positions


class StateLayout:
    """The offset of each recurrent layer within a sequence's state, in floats.

    `offsets` maps a layer's shape to its offset. `num_floats` is the size of the state.
    """

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)


def num_states(num_parallel: int, max_drafts: int = 0) -> int:
    """Returns the number of states: one for each sequence, and MAX_STATES - 1 snapshots.

    With drafts there is one more for every token of a check.
    """
    return MAX_STATES - 1 + num_parallel + num_draft_states(num_parallel, max_drafts)


def num_draft_states(num_parallel: int, max_drafts: int) -> int:
    """Returns the states that a check of drafts stores, one after each token; 0 without drafts."""
    return max_drafts + num_parallel if max_drafts else 0


def state_bytes(shapes: Iterable[RecurrentShape]) -> int:
    """Returns the bytes of one state of these layers."""
    return 4 * StateLayout(shapes).num_floats
