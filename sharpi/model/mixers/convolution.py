"""The causal convolution of recurrent layers, and the layers of LFM2 that are one between gates.

Weights are in the layout that Ops expects.
"""

import numpy as np
from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.rope import Angles
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, FloatArray, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, RecurrentShape

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
        """The shape of the convolution's state, which holds the last gated inputs."""
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
