"""Ops: the operations that models are written in, with several implementations.

`X` is a value with one row per token or, after `select_outputs`, one row per output: an array in
the NumPy reference, a buffer in a recorder. The shapes below are those of one row. Weights stay in
their quant blocks.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, Mamba2Shape

FloatArray = npt.NDArray[np.float32]
X = TypeVar("X")


class HeadGate(IntEnum):
    """The activation of gates after attention; the numbers are those of the ABI."""

    SIGMOID = 0
    SOFTPLUS = 1


class Activation(IntEnum):
    """The activation of a feed-forward; the numbers are those of the ABI.

    CLAMPED_SWIGLU is x * sigmoid(1.702 x) of the gate, clamped to at most 7. It multiplies up + 1,
    with up clamped to -7..7 (gpt-oss). LIMITED_SILU_7 and LIMITED_SILU_16 are silu, clamped
    to at most 7 or 16. They multiply up, clamped to -7..7 or -16..16 (Step 3.5).
    """

    SILU = 0
    GELU_TANH = 1
    GELU = 2
    RELU2 = 3
    SIGMOID = 4
    IDENTITY = 5
    CLAMPED_SWIGLU = 6
    LIMITED_SILU_7 = 7
    LIMITED_SILU_16 = 8


class Scoring(IntEnum):
    """The function that turns router logits into scores; the numbers are those of the ABI.

    SPARSE_MIXER chooses one expert after the other. The weight of each is its softmax over those
    remaining experts whose logits are near the best one's (Phi-3.5 MoE; arXiv 2409.12136).
    """

    SOFTMAX = 0
    SIGMOID = 1
    SOFTMAX_OF_CHOSEN = 2
    SPARSE_MIXER = 3


class Matrix(Struct, frozen=True):
    """A (rows, columns) matrix in quant blocks."""

    name: str
    quant_type: QuantType
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]  # row-major quant blocks
    bias: FloatArray | None = None  # (rows,)
    scale: float = 1.0  # multiplies the dequantised blocks


class StackedMatrix(Struct, frozen=True):
    """Matrices of equal shape, (experts, rows, columns), in quant blocks."""

    name: str
    quant_type: QuantType
    num_experts: int
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]  # may also hold other rows of each expert
    bias: FloatArray | None = None  # (experts, rows)
    scales: FloatArray | None = None  # (experts,), multiplies the dequantised blocks
    first_row: int = 0  # where these rows begin among an expert's rows in `data`

    @property
    def expert_bytes(self) -> int:
        """The bytes of one matrix in quant blocks."""
        return self.rows * row_bytes(self.quant_type, self.columns)

    @property
    def shares_data(self) -> bool:
        """True if `data` holds other matrices as well."""
        return self.data.nbytes != self.num_experts * self.expert_bytes


class ExpertWeights(Struct, frozen=True):
    """The matrices of a feed-forward; those of a dense one are stacked matrices of one expert."""

    gate: StackedMatrix | None  # None if the activation is applied to `up`
    up: StackedMatrix
    down: StackedMatrix
    layer: int | None = None  # index of the layer; None unless the experts are routed
    weighs_input: bool = False  # the expert's input is multiplied by its routing weight (Llama 4)


class ExpertSource(Protocol):
    """Provides routed experts that are not all in memory.

    Where code takes a source or None, None means that all experts are in the mapped file.
    """

    @property
    def handle(self) -> int:
        """The pointer to the native expert feed."""

    def table(self, layer: int, piece: int) -> int:
        """Returns the address of an array with the address of each expert's matrix in a layer.

        `piece` is 0 for the gate matrices, 1 for up and 2 for down.
        """

    @property
    def asks_router(self) -> bool:
        """True if a layer's router predicts its routes from the previous layer's hidden state."""


class Router(Struct, frozen=True):
    """The rules by which a layer chooses experts.

    With groups, a token chooses among the experts of the `groups_used` best groups. A group's score
    is the sum of its two best experts' scores; with softmax it is its best expert's score.
    """

    num_experts: int
    num_used: int  # experts per token
    scoring: Scoring = Scoring.SOFTMAX
    normalise: bool = True  # the weights are divided by their sum
    scale: float = 1.0  # multiplies the weights, after normalisation
    bias: FloatArray | None = None  # (experts,), added to the scores for the choice alone
    num_groups: int = 0
    groups_used: int = 0
    layer: int = 0  # the index of the layer


class AttentionShape(Struct, frozen=True):
    """The sizes and options of one layer's attention."""

    layer: int  # the layer whose part of the KV cache is used
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    window: int = 0  # positions that a token sees, including its own; 0 for all
    soft_cap: float = 0.0  # soft cap of the scores, 0 for none
    is_chunked: bool = False  # windows are chunks: a token sees only positions of its own chunk
    values_in_keys: bool = False  # the first `value_dim` values of a key are its value


class RopeTable(Struct, frozen=True):
    """The frequencies of a rotary embedding; an angle is position * frequency."""

    frequencies: FloatArray  # (half,), in radians per position
    scale: float = 1.0  # multiplies cosines and sines


class Ops(Protocol[X]):
    """The operations that `sharpi.model` computes with."""

    def embed(self, table: Matrix, scale: float) -> X:
        """Looks up the rows of the table for the step's ids, times `scale`: (columns,)."""

    def rms_norm(self, x: X, weight: FloatArray, epsilon: float, groups: int = 1) -> X:
        """Computes x / rms(x) * weight over each of `groups` parts of x.

        The weight is as wide as one part, or as x.
        """

    def linear(self, x: X, matrices: Sequence[Matrix]) -> list[X]:
        """Computes W x + bias for each matrix: (rows,)."""

    def linear_add(self, x: X, matrix: Matrix, residual: X, scale: float) -> X:
        """Computes residual + scale * (W x + bias): (rows,)."""

    def rope_angles(self, table: RopeTable) -> X:
        """Computes cosines and sines for the step's positions."""

    def rope(self, x: X, num_heads: int, angles: X, interleaved: bool) -> X:
        """Rotates each head's leading values: pairs (i, i + half), or (2i, 2i + 1)."""

    def attention(
        self,
        q: X,
        k: X | None,
        v: X | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
    ) -> X:
        """Stores k and v in the KV cache, then computes attention: (num_heads * value_dim,).

        Without k and v nothing is stored, and attention reads the keys and values that an earlier
        layer stored. Without v alone, the values are part of the keys. `sinks` (num_heads,) is a
        logit of each head that takes part in the softmax but has no value.
        """

    def route(self, logits: X, router: Router) -> tuple[X, X]:
        """Chooses experts: returns their ids, best first, and their weights, (num_used,) each."""

    def predict_routes(
        self, x: X, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        """Predicts a later layer's routes from an earlier x, with that layer's norm and router.

        The prediction is a hint for prefetching; an implementation may ignore it.
        """

    def experts(
        self,
        x: X,
        expert_weights: ExpertWeights,
        activation: Activation,
        route: tuple[X, X] | None,
        residual: X | None,
        scale: float = 1.0,
    ) -> X:
        """Computes residual + scale * sum of weight * down(act(gate x) * up x) over the route.

        Without a gate, an expert is down(act(up x)). Without a route, expert 0 is used with weight
        1.
        """

    def gated_expert(
        self, x: X, expert_weights: ExpertWeights, activation: Activation, weight: X, residual: X
    ) -> X:
        """Computes residual + weight * down(act(gate x) * up x) of a shared expert; weight (1,)."""

    def add(self, a: X, b: X, scale: float) -> X:
        """Computes a + scale * b."""

    def scale(self, x: X, factor: float) -> X:
        """Computes factor * x."""

    def sigmoid(self, x: X) -> X:
        """Computes 1 / (1 + e^-x)."""

    def soft_cap(self, x: X, cap: float) -> X:
        """Computes cap * tanh(x / cap)."""

    def select_outputs(self, x: X) -> X:
        """Selects the rows whose logits are wanted."""

    def split(self, x: X, widths: Sequence[int], groups: int = 1) -> list[X]:
        """Splits x, which is `groups` runs of sum(widths) values: (groups * widths[i],) each."""

    def gated(self, gate: X, x: X, activation: Activation) -> X:
        """Computes activation(gate) * x."""

    def convolve(
        self,
        x: X,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        *,
        silu: bool,
    ) -> X:
        """Computes act(bias + sum over j of weight[j] * x[t - (kernel - 1 - j)]) for token t.

        x and the result are (channels,), weight (kernel, channels). Earlier tokens are those of the
        same sequence; before its start, x is zero.
        """

    def delta_net(self, qkv: X, beta: X, alpha: X, rates: DecayRates, shape: DeltaNetShape) -> X:
        """Applies the gated delta rule, head by head: (num_value_heads * value_dim,).

        qkv is (2 * num_key_heads * key_dim + num_value_heads * value_dim,); q and k are scaled to
        unit length, then q is divided by sqrt(key_dim). beta and alpha (num_value_heads,) are given
        before their sigmoid and softplus. S = decay S, S += k sigmoid(beta) (v - k S), out = q S.
        """

    def mamba2(self, xbc: X, dt: X, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape) -> X:
        """Computes the state space step, head by head: (num_heads * head_dim,).

        xbc is (num_heads * head_dim + 2 * num_groups * state_size,), dt (num_heads,) is given
        before its softplus, skip is (num_heads,). S = decay S + B dt x, out = C S + skip x.
        """

    def layer_norm(self, x: X, weight: FloatArray, bias: FloatArray, epsilon: float) -> X:
        """Computes (x - mean) / deviation * weight + bias."""

    def scale_by_position(self, x: X, interval: int, rate: float, offset: int) -> X:
        """Computes x * (1 + rate * ln(1 + floor((position + offset) / interval)))."""

    def gate_heads(self, gate: X, x: X, activation: HeadGate) -> X:
        """Multiplies each run of x (gates * width,) by the activation of its gate, (gates,)."""

    def head_linear(self, x: X, stacked: StackedMatrix) -> X:
        """Multiplies head h of x (heads * columns,) by the matrix stacked[h]: (heads * rows,)."""

    def join(self, first: X, second: X, groups: int = 1) -> X:
        """Joins two values in each of `groups` runs; the inverse of `split`."""

    def part(self, x: X, begin: int, width: int) -> X:
        """Takes `width` values of each row, from index `begin` on: (width,)."""
