"""The norms of a model, and the branches of the residual stream that begin with one.

A norm is an RMS norm, or a layer norm if it has a bias.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Matrix, Ops, X


class Norm(Struct, frozen=True):
    """RMS norm, x / rms(x) * weight; or layer norm, (x - mean) / deviation * weight + bias."""

    weight: FloatArray
    epsilon: float
    bias: FloatArray | None = None  # of layer norm; None for RMS norm

    def apply(self, ops: Ops[X], x: X, width: int | None = None) -> X:
        """Returns x normed; `width` is the size of x, by default that of the weight.

        If it is a multiple of the weight's size, an RMS norm is applied to each part of that size.
        """
        if self.bias is not None:
            return ops.layer_norm(x, self.weight, self.bias, self.epsilon)
        groups = 1 if width is None else width // self.weight.size
        return ops.rms_norm(x, self.weight, self.epsilon, groups)


def load_norm(
    tensors: TensorSource, name: str, epsilon: float, *sizes: int, is_layer_norm: bool = False
) -> Norm:
    """Loads the norm `<name>.weight`, which must have one of `sizes`, with its bias if any.

    With `is_layer_norm`, a missing bias is replaced by zeros.
    """
    # Falcon-H1's files leave the suffix out.
    is_short = tensors.has(name) and not tensors.has(f"{name}.weight")
    weight = tensors.vector(name if is_short else f"{name}.weight", *sizes)
    bias = tensors.optional_vector(f"{name}.bias", weight.size)
    if bias is None and is_layer_norm:
        bias = np.zeros(weight.size, np.float32)
    return Norm(weight, epsilon, bias)


def optional_norm(tensors: TensorSource, name: str, epsilon: float, *sizes: int) -> Norm | None:
    """Loads a norm as `load_norm` does; returns None if the file does not have it."""
    return load_norm(tensors, name, epsilon, *sizes) if tensors.has(f"{name}.weight") else None


class Branch(Struct, frozen=True):
    """Computes x + scale * post_norm(computation(norm(x))) of the residual stream x."""

    norm: Norm | None  # None in architectures without one, as `post_norm`
    post_norm: Norm | None
    scale: float

    def follow(
        self,
        ops: Ops[X],
        x: X,
        compute: Callable[[X, X | None, float], X],
        source: X | None = None,
    ) -> X:
        """Returns the residual stream (hidden,) after the branch.

        If `source` (hidden,) is not None, the norm reads it instead of x.

        `compute(h, residual, scale)` returns residual + scale * f(h) for the normed input h, or
        f(h) without a residual.
        """
        h = x if source is None else source
        h = h if self.norm is None else self.norm.apply(ops, h)
        if self.post_norm is None:
            return compute(h, x, self.scale)
        return ops.add(x, self.post_norm.apply(ops, compute(h, None, 1.0)), self.scale)


def project(ops: Ops[X], x: X, matrix: Matrix, residual: X | None, scale: float) -> X:
    """Returns residual + scale * (matrix x), or the product alone without a residual."""
    if residual is not None:
        return ops.linear_add(x, matrix, residual, scale)
    (projected,) = ops.linear(x, [matrix])
    return projected
