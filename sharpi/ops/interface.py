"""Ops: the interface of the operations that model code calls, which has several implementations.

`X` is a value with one row per token or, after `select_outputs`, one row per output: an array in
the NumPy reference, a buffer in a recorder. Docstrings give the shape of one row. Weights stay in
quant blocks.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.ops.attention_shape import AttentionShape, Chosen, HeadGate, RopeTable
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, Mamba2Shape

FloatArray = npt.NDArray[np.float32]
X = TypeVar("X")


class Activation(IntEnum):
    """The activation of a feed-forward; the native library uses the same numbers.

    CLAMPED_SWIGLU (gpt-oss) is g * sigmoid(1.702 g), where g is the gate clamped to at most 7. It
    multiplies up + 1, with up clamped to -7..7. LIMITED_SILU_7 and LIMITED_SILU_16 (Step 3.5) are
    silu(gate), clamped to at most 7 or 16. They multiply up, clamped to -7..7 or -16..16.
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


class Unary(IntEnum):
    """A function of single values; the native library uses the same numbers."""

    SIGMOID = 0
    SOFT_CAP = 1
    CLAMP = 2
    XIELU = 3


class Scoring(IntEnum):
    """The function that turns router logits into scores; the native library uses the same numbers.

    SPARSE_MIXER (Phi-3.5 MoE, arXiv 2409.12136) chooses the remaining expert with the largest
    logit, one by one. Its weight is the softmax over remaining experts with logits near its own.
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
    """The equal matrices of all experts (or heads): (experts, rows, columns) in quant blocks."""

    name: str
    quant_type: QuantType
    num_experts: int
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]  # may also hold rows of other matrices of each expert
    bias: FloatArray | None = None  # (experts, rows)
    scales: FloatArray | None = None  # (experts,), multiplies the dequantised blocks
    first_row: int = 0  # where these rows begin among an expert's rows in `data`

    @property
    def expert_bytes(self) -> int:
        """The bytes of one matrix in quant blocks."""
        return self.rows * row_bytes(self.quant_type, self.columns)

    @property
    def shares_data(self) -> bool:
        """True if `data` also holds other matrices, as a tensor of gate and up does."""
        return self.data.nbytes != self.num_experts * self.expert_bytes


class ExpertWeights(Struct, frozen=True):
    """The gate, up and down matrices of a feed-forward; a dense one has a single expert."""

    gate: StackedMatrix | None  # None if the activation is applied to `up`
    up: StackedMatrix
    down: StackedMatrix
    layer: int | None = None  # index of the layer; None unless the experts are routed
    weighs_input: bool = False  # the expert's input is multiplied by its routing weight (Llama 4)


class ExpertSource(Protocol):
    """Loads routed experts that are not all in memory; without one, the mapped file has all."""

    @property
    def handle(self) -> int:
        """The pointer to the native object that loads experts during a step."""

    def table(self, layer: int, piece: int) -> int:
        """Returns the address of an array with the address of each expert's matrix in a layer.

        `piece` is 0 for the gate matrices, 1 for up and 2 for down.
        """

    @property
    def uses_router(self) -> bool:
        """True if each step has to run the next layer's router early, to predict its experts."""


class Router(Struct, frozen=True):
    """The rules by which a layer chooses experts from router logits.

    With `num_groups` > 1, a token chooses among the experts of the `groups_used` best groups. A
    group's score is the sum of its two best experts' scores; for SOFTMAX, its best expert's score.
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


class Ops(Protocol[X]):
    """The operations that `sharpi.model` computes with."""

    def embed(self, table: Matrix, scale: float) -> X:
        """Computes scale * the embedding of each of the step's token ids: (columns,)."""

    def rms_norm(self, x: X, weight: FloatArray, epsilon: float, groups: int = 1) -> X:
        """Computes x / rms(x) * weight of each of `groups` parts; weights as wide as one, or x."""

    def linear(self, x: X, matrices: Sequence[Matrix]) -> list[X]:
        """Computes W x + bias for each matrix: (rows,)."""

    def linear_add(self, x: X, matrix: Matrix, residual: X, scale: float) -> X:
        """Computes residual + scale * (W x + bias): (rows,)."""

    def rope_angles(self, table: RopeTable) -> X:
        """Computes the cosines and sines of a rotary embedding for the step's positions."""

    def rope(self, x: X, num_heads: int, angles: X, interleaved: bool) -> X:
        """Turns numbers i and i + half of each head by `angles`; 2i and 2i + 1 if `interleaved`."""

    def attention(
        self,
        q: X,
        k: X | None,
        v: X | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
        chosen: Chosen[X] | None = None,
    ) -> X:
        """Stores k and v in the KV cache, then computes attention: (num_heads * value_dim,).

        If k and v are None, nothing is stored, and attention reads the keys and values that an
        earlier layer stored. If only v is None, the values are part of the keys. `sinks`
        (num_heads,) are attention sinks: one more logit in each head's softmax, without a value.
        Only the positions of `chosen` take part, if it is given.
        """

    def choose(
        self,
        keys: Callable[[], X],
        queries: Callable[[], tuple[X, X | None]],
        shape: AttentionShape,
    ) -> Chosen[X] | None:
        """Stores the keys (key_dim,) of the layer's indexer, then chooses blocks of positions.

        `queries` returns (num_heads * key_dim,), for the sizes of `shape.index`, and the weights
        (num_heads,) of a joint choice. A position's score is scale q.k for each head; for all heads
        together it is the sum of weights * max(0, scale q.k). A block's score is the best of its
        visible positions. The lower of blocks with equal scores is chosen. The result is None if
        the KV cache has no more positions than are chosen; `queries` is not called then.
        """

    def route(self, logits: X, router: Router) -> tuple[X, X]:
        """Chooses experts: returns their ids, best first, and their weights, (num_used,) each."""

    def predict_routes(
        self, x: X, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        """Predicts the routes of a later layer from x, a hidden state of an earlier layer.

        `norm`, `matrix` and `router` are the later layer's. An implementation may ignore the hint.
        """

    def experts(
        self,
        x: X,
        expert_weights: ExpertWeights,
        activation: Activation,
        route: tuple[X | None, X] | None,
        residual: X | None,
        scale: float = 1.0,
    ) -> X:
        """Computes residual + scale * sum of weight * down(act(gate x) * up x) over the route.

        The route is ids and weights. Without a gate, an expert is down(act(up x)). Without ids,
        expert 0 is used, and without a route with weight 1.
        """

    def add(self, a: X, b: X, scale: float) -> X:
        """Computes a + scale * b."""

    def scale(self, x: X, factor: float) -> X:
        """Computes factor * x."""

    def unary(self, x: X, function: Unary, *parameters: float) -> X:
        """Computes a function of each value of x.

        SIGMOID: 1 / (1 + e^-x). SOFT_CAP (cap): cap tanh(x / cap). CLAMP (limit): x within -limit
        to limit. XIELU (a, b, c, d; arXiv 2411.13010): a x^2 + c x above 0, and elsewhere
        b (e^min(x, d) - 1 - x) + c x.
        """

    def select_outputs(self, x: X) -> X:
        """Selects the rows of x for tokens whose logits are requested."""

    def split(self, x: X, widths: Sequence[int], groups: int = 1) -> list[X]:
        """Splits each of `groups` equal parts of x into pieces of the given widths.

        Result i joins piece i of every part: (groups * widths[i],).
        """

    def gated(self, gate: X, x: X, activation: Activation) -> X:
        """Computes activation(gate) * x."""

    def convolve(
        self, x: X, weight: FloatArray, bias: FloatArray | None, shape: ConvolutionShape, silu: bool
    ) -> X:
        """Computes act(bias + sum over j of weight[j] * x[t - (kernel - 1 - j)]) for token t.

        x and the result are (channels,), weight (kernel, channels), and act is silu or the
        identity. x[t] is that of token t of the sequence, and zero before its start.
        """

    def delta_net(self, qkv: X, beta: X, alpha: X, rates: DecayRates, shape: DeltaNetShape) -> X:
        """Computes the gated delta rule for each head: (num_value_heads * value_dim,).

        qkv is (2 * num_key_heads * key_dim + num_value_heads * value_dim,). q and k are scaled to
        unit length, then q is divided by sqrt(key_dim). beta and alpha are
        (num_value_heads,); alpha has key_dim values for each head if keys decay by themselves. The
        decay is that of `DecayRates` with x = alpha. S = decay S, S += k sigmoid(beta) (v - k S),
        out = q S.
        """

    def mamba2(self, xbc: X, dt: X, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape) -> X:
        """Computes the state space model of Mamba-2 for each head: (num_heads * head_dim,).

        xbc is x, B and C, (num_heads * head_dim + 2 * num_groups * state_size,). dt and skip are
        (num_heads,). Let dt' = softplus(dt + dt_bias) and decay = e^(a dt'). Then S = decay S + B
        dt' x, out = C S + skip x.
        """

    def layer_norm(self, x: X, weight: FloatArray, bias: FloatArray, epsilon: float) -> X:
        """Computes (x - mean) / deviation * weight + bias."""

    def scale_by_position(self, x: X, interval: int, rate: float, offset: int) -> X:
        """Computes x * (1 + rate * ln(1 + floor((position + offset) / interval)))."""

    def gate_heads(self, gate: X, x: X, activation: HeadGate) -> X:
        """Multiplies each of `gates` parts of x (gates * width,) by its activated gate (gates,)."""

    def head_linear(self, x: X, stacked: StackedMatrix) -> X:
        """Multiplies head h of x (heads * columns,) by the matrix stacked[h]: (heads * rows,)."""

    def join(self, first: X, second: X, groups: int = 1) -> X:
        """Concatenates two values in each of `groups` equal parts; the inverse of `split`."""

    def part(self, x: X, begin: int, width: int) -> X:
        """Returns columns `begin` up to `begin` + `width` of each row: (width,)."""
