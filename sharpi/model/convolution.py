"""The causal convolution inside a recurrent layer, its weights as the operation takes them."""

from dataclasses import dataclass

import numpy as np

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Ops, X
from sharpi.ops.recurrent import ConvolutionShape

MAX_KERNEL = 16  # as kernels/cpu/op_convolution.cpp has it


@dataclass(frozen=True, slots=True)
class Convolution:
    """weight (kernel, channels), bias (channels,)."""

    shape: ConvolutionShape
    weight: FloatArray
    bias: FloatArray | None

    def apply(self, ops: Ops[X], x: X, *, silu: bool) -> X:
        """x (channels,) convolved with the tokens before it."""
        return ops.convolve(x, self.weight, self.bias, self.shape, silu=silu)


def load_convolution(tensors: TensorSource, name: str, shape: ConvolutionShape) -> Convolution:
    """`<name>.weight`, (channels, kernel) in the file, with `<name>.bias` where there is one."""
    weight = tensors.array(f"{name}.weight", (shape.channels, shape.kernel))
    bias = tensors.optional_vector(f"{name}.bias", shape.channels)
    return Convolution(shape, np.ascontiguousarray(weight.T), bias)
