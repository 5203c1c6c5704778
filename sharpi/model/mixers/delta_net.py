"""Gated delta net (Qwen3-Next, Qwen3.5; arXiv 2412.06464): linear attention with the delta rule."""

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.convolution import (
    Convolution,
    check_heads,
    load_convolution,
    read_convolution,
)
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Norm, load_norm
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, RecurrentShape

MAX_KEY_DIM = 256  # the limit of kernels/cpu/operations/op_delta_net.cpp


class DeltaNetSettings(Struct, frozen=True):
    """The sizes of one layer's heads, and of the convolution of queries, keys and values."""

    shape: DeltaNetShape
    convolution: ConvolutionShape
    hidden_size: int
    norm_epsilon: float
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """The shapes of the recurrent states: the convolution's, then the heads'."""
        return (self.convolution, self.shape)

    def load(self, tensors: TensorSource) -> "DeltaNet":
        """Loads the weights; some files join several projections in one matrix."""
        shape, hidden = self.shape, self.hidden_size
        heads, values = shape.num_value_heads, shape.num_value_heads * shape.value_dim
        inputs = {"attn_qkv": shape.width, "attn_gate": values}
        if tensors.has("ssm_in.weight"):
            inputs = {"ssm_in": shape.width + values}
        gates = {"ssm_beta": heads, "ssm_alpha": heads}
        if tensors.has("ssm_ba.weight"):
            gates = {"ssm_ba": 2 * heads}
        return DeltaNet(
            settings=self,
            inputs=tuple(tensors.matrix(name, (rows, hidden)) for name, rows in inputs.items()),
            gates=tuple(tensors.matrix(name, (rows, hidden)) for name, rows in gates.items()),
            convolution=load_convolution(tensors, "ssm_conv1d", self.convolution),
            rates=DecayRates(tensors.vector("ssm_a", heads), tensors.vector("ssm_dt.bias", heads)),
            norm=load_norm(tensors, "ssm_norm", self.norm_epsilon, shape.value_dim),
            output=tensors.matrix("ssm_out", (hidden, values)),
        )


class DeltaNet(Struct, frozen=True):
    """The weights of one layer.

    A joint matrix holds, for one key head after the other, the rows of all projections of this head
    and of its value heads.
    """

    settings: DeltaNetSettings
    # Two matrices, for queries with keys and values and for the output gate; or one joint matrix.
    inputs: tuple[Matrix, ...]
    gates: tuple[Matrix, ...]  # two matrices, for beta and alpha; or one joint matrix
    convolution: Convolution
    rates: DecayRates
    norm: Norm
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (num_value_heads * value_dim,), for h (hidden,)."""
        shape = self.settings.shape
        qkv, gate, beta, alpha = self._project(ops, h)
        qkv = self.convolution.apply(ops, qkv, silu=True)
        mixed = ops.delta_net(qkv, beta, alpha, self.rates, shape)
        normed = self.norm.apply(ops, mixed, shape.num_value_heads * shape.value_dim)
        return ops.gated(gate, normed, Activation.SILU)

    def _project(self, ops: Ops[X], h: X) -> list[X]:
        shape, num_inputs = self.settings.shape, len(self.inputs)
        projected = ops.linear(h, [*self.inputs, *self.gates])
        inputs, gates = projected[:num_inputs], projected[num_inputs:]
        shared = shape.num_value_heads // shape.num_key_heads
        if num_inputs == 1:
            values = shared * shape.value_dim
            widths = (shape.key_dim, shape.key_dim, values, values)
            q, k, v, gate = ops.split(inputs[0], widths, groups=shape.num_key_heads)
            inputs = [ops.join(ops.join(q, k), v), gate]
        if len(gates) == 1:
            gates = ops.split(gates[0], (shared, shared), groups=shape.num_key_heads)
        return [*inputs, *gates]


def read_delta_net(
    reader: HyperparameterReader, spec: ArchitectureSpec, norm_epsilon: float, layer: int
) -> DeltaNetSettings:
    """Reads one layer's settings; raises ModelFileError, which names the key at fault."""
    key_heads, heads = (
        reader.count(key, maximum=1 << 12) for key in ("ssm.group_count", "ssm.time_step_rank")
    )
    inner = reader.count("ssm.inner_size", maximum=1 << 20)
    check_heads(reader, key_heads, heads, inner)
    key_dim = reader.count("ssm.state_size", maximum=MAX_KEY_DIM)
    shape = DeltaNetShape(layer, key_heads, heads, key_dim, inner // heads, spec.delta_net_heads)
    convolution = read_convolution(reader, layer, shape.width)
    return DeltaNetSettings(shape, convolution, reader.hidden_size, norm_epsilon)
