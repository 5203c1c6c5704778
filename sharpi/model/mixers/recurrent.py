"""Recurrent mixers: the short convolution of LFM2, the gated delta net, and Mamba-2.

All have a causal convolution. The gated delta net (Qwen3-Next, Qwen3.5; arXiv 2412.06464) is linear
attention with the delta rule. Mamba-2 (Granite 4, Nemotron 3) has a state space layer. Weights are
in the layout that Ops expects.
"""

from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Norm, load_norm
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, FloatArray, Matrix, Ops, X
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    RecurrentShape,
)

MAX_KERNEL = 16  # the limit of kernels/cpu/operations/op_convolution.cpp


class Convolution(Struct, frozen=True):
    """The weights of a causal depthwise convolution: one kernel for each channel."""

    shape: ConvolutionShape
    weight: FloatArray  # (kernel, channels)
    bias: FloatArray | None  # (channels,)

    def apply(self, ops: Ops[X], x: X, *, silu: bool) -> X:
        """Returns the convolution (channels,) over x (channels,) and the tokens before it.

        With `silu`, the activation function silu is applied to the result.
        """
        return ops.convolve(x, self.weight, self.bias, self.shape, silu=silu)


def read_convolution(reader: HyperparameterReader, layer: int, channels: int) -> ConvolutionShape:
    """Reads the shape of a layer's convolution; raises ModelFileError, which names the key."""
    return ConvolutionShape(layer, channels, reader.count("ssm.conv_kernel", maximum=MAX_KERNEL))


def check_heads(reader: HyperparameterReader, groups: int, heads: int, inner: int) -> None:
    """Raises ModelFileError unless `groups` divides `heads`, and `heads` divides `inner`."""
    for key, rest in (("ssm.group_count", heads % groups), ("ssm.inner_size", inner % heads)):
        if rest:
            raise reader.fault(
                f"{reader.name(key)} does not fit {reader.name('ssm.time_step_rank')}, {heads}"
            )


def load_convolution(tensors: TensorSource, name: str, shape: ConvolutionShape) -> Convolution:
    """Loads `<name>.weight` (channels, kernel) in transposed form, and `<name>.bias` if any."""
    weight = tensors.array(f"{name}.weight", (shape.channels, shape.kernel))
    bias = tensors.optional_vector(f"{name}.bias", shape.channels)
    return Convolution(shape, np.ascontiguousarray(weight.T), bias)


class ShortConvolutionSettings(Struct, frozen=True):
    """The shape of one layer's convolution; it has one channel per value of the hidden state."""

    shape: ConvolutionShape
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        return (self.shape,)

    def load(self, tensors: TensorSource) -> "ShortConvolution":
        """Loads the input projection, the convolution and the output projection."""
        hidden = self.shape.channels
        gate, out_gate, x = tensors.rows("shortconv.in_proj", (hidden, hidden, hidden), hidden)
        return ShortConvolution(
            gate=gate,
            out_gate=out_gate,
            x=x,
            convolution=load_convolution(tensors, "shortconv.conv", self.shape),
            output=tensors.matrix("shortconv.out_proj", (hidden, hidden)),
        )


class ShortConvolution(Struct, frozen=True):
    """Computes out_gate(h) * convolution(gate(h) * x(h)); the gates have no activation function."""

    gate: Matrix
    out_gate: Matrix
    x: Matrix
    convolution: Convolution
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (hidden,), for h (hidden,)."""
        gate, out_gate, x = ops.linear(h, [self.gate, self.out_gate, self.x])
        mixed = self.convolution.apply(ops, ops.gated(gate, x, Activation.IDENTITY), silu=False)
        return ops.gated(out_gate, mixed, Activation.IDENTITY)


def read_short_convolution(reader: HyperparameterReader, layer: int) -> ShortConvolutionSettings:
    """Reads one layer's settings; raises ModelFileError, which names the key at fault."""
    kernel = reader.count("shortconv.l_cache", maximum=MAX_KERNEL)
    return ShortConvolutionSettings(ConvolutionShape(layer, reader.hidden_size, kernel))


MAX_KEY_DIM = 256  # the limit of kernels/cpu/operations/op_delta_net.cpp


Shape = TypeVar("Shape", DeltaNetShape, Mamba2Shape)


class StateSettings(Struct, Generic[Shape], frozen=True):
    """The sizes of one layer's heads and their state, and of the convolution of their inputs."""

    shape: Shape
    convolution: ConvolutionShape
    hidden_size: int
    norm_epsilon: float
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        return (self.convolution, self.shape)


class DeltaNetSettings(StateSettings[DeltaNetShape], frozen=True):
    """The sizes of a gated delta net, whose inputs are queries, keys and values."""

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


class Mamba2Settings(StateSettings[Mamba2Shape], frozen=True):
    """The sizes of a state space layer."""

    def load(self, tensors: TensorSource) -> "Mamba2":
        """Loads the weights; splits the input projection into gate, x with B and C, and dt."""
        shape, hidden = self.shape, self.hidden_size
        heads, groups = shape.num_heads, shape.num_groups
        inner = heads * shape.head_dim
        gate, xbc, dt = tensors.rows("ssm_in", (inner, shape.width, heads), hidden)
        norm: Norm | None = None
        if tensors.has("ssm_norm.weight"):
            weight = tensors.array("ssm_norm.weight", (groups, inner // groups))
            norm = Norm(weight.reshape(inner), self.norm_epsilon)
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
            norm=norm,
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
    norm: Norm | None
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (num_heads * head_dim,), for h (hidden,)."""
        gate, xbc, dt = ops.linear(h, [self.gate, self.xbc, self.dt])
        xbc = self.convolution.apply(ops, xbc, silu=True)
        mixed = ops.mamba2(xbc, dt, self.rates, self.skip, self.settings.shape)
        gated = ops.gated(gate, mixed, Activation.SILU)
        if self.norm is None:
            return gated
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
