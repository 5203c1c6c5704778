"""The causal convolution of recurrent layers, with weights in the layout that Ops expects."""

import numpy as np
from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Ops, X
from sharpi.ops.recurrent import ConvolutionShape

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
