"""Mamba-2 (Granite 4, Nemotron 3): a convolution, a state space layer and a gated norm."""

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.convolution import (
    Convolution,
    check_heads,
    load_convolution,
    read_convolution,
)
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, FloatArray, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, Mamba2Shape, RecurrentShape


class Mamba2Settings(Struct, frozen=True):
    """The sizes of one layer's heads, and of the convolution of their inputs."""

    shape: Mamba2Shape
    convolution: ConvolutionShape
    hidden_size: int
    norm_epsilon: float
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """The shapes of the recurrent states: the convolution's, then the heads'."""
        return (self.convolution, self.shape)

    def load(self, tensors: TensorSource) -> "Mamba2":
        """Loads the weights; splits the input projection into gate, x with B and C, and dt."""
        shape, hidden = self.shape, self.hidden_size
        heads, groups = shape.num_heads, shape.num_groups
        inner = heads * shape.head_dim
        gate, xbc, dt = tensors.rows("ssm_in", (inner, shape.width, heads), hidden)
        norm = tensors.array("ssm_norm.weight", (groups, inner // groups))
        return Mamba2(
            settings=self,
            gate=gate,
            xbc=xbc,
            dt=dt,
            convolution=load_convolution(tensors, "ssm_conv1d", self.convolution),
            rates=DecayRates(
                tensors.array("ssm_a", (heads, 1)).reshape(heads),
                tensors.vector("ssm_dt.bias", heads),
            ),
            skip=tensors.array("ssm_d", (heads, 1)).reshape(heads),
            norm=Norm(norm.reshape(inner), self.norm_epsilon),
            output=tensors.matrix("ssm_out", (hidden, inner)),
        )


class Mamba2(Struct, frozen=True):
    """The weights of one layer; the norm follows the gate and is per group of heads."""

    settings: Mamba2Settings
    gate: Matrix
    xbc: Matrix
    dt: Matrix
    convolution: Convolution
    rates: DecayRates
    skip: FloatArray
    norm: Norm
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (num_heads * head_dim,), for h (hidden,)."""
        gate, xbc, dt = ops.linear(h, [self.gate, self.xbc, self.dt])
        xbc = self.convolution.apply(ops, xbc, silu=True)
        mixed = ops.mamba2(xbc, dt, self.rates, self.skip, self.settings.shape)
        gated = ops.gated(gate, mixed, Activation.SILU)
        groups = self.settings.shape.num_groups
        return ops.rms_norm(gated, self.norm.weight, self.norm.epsilon, groups)


def read_mamba2(reader: HyperparameterReader, norm_epsilon: float, layer: int) -> Mamba2Settings:
    """Reads one layer's settings; raises ModelFileError, which names the key at fault."""
    heads = reader.count("ssm.time_step_rank", maximum=1 << 12)
    groups = reader.count("ssm.group_count", maximum=heads)
    inner = reader.count("ssm.inner_size", maximum=1 << 20)
    check_heads(reader, groups, heads, inner)
    state_size = reader.count("ssm.state_size", maximum=1 << 12)
    shape = Mamba2Shape(layer, heads, groups, inner // heads, state_size)
    convolution = read_convolution(reader, layer, shape.width)
    return Mamba2Settings(shape, convolution, reader.hidden_size, norm_epsilon)
