"""Dequantised weights, softmax and activations of the reference, in float32.

The reference is for tests, which install the gguf package; nothing else imports it.
"""

from math import erf

import gguf
import numpy as np
from msgspec.structs import replace

from sharpi.ops.interface import Activation, FloatArray, Matrix, StackedMatrix, Unary


def dequantise(weight: Matrix | StackedMatrix) -> FloatArray:
    """Dequantises to float32: (rows, columns), or (experts, rows, columns) of a stacked matrix."""
    kind = gguf.GGMLQuantizationType(int(weight.quant_type))
    shape: tuple[int, ...] = (weight.rows, weight.columns)
    if isinstance(weight, StackedMatrix):
        shape = (weight.num_experts, *shape)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = weight.data.reshape(-1, weight.columns // block * block_bytes)
    if isinstance(weight, StackedMatrix) and weight.shares_data:
        end = weight.first_row + weight.rows
        parts = rows.reshape(weight.num_experts, -1, rows.shape[-1])
        rows = parts[:, weight.first_row : end].reshape(-1, rows.shape[-1])
    if kind == gguf.GGMLQuantizationType.BF16:
        halves = rows.view(np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    values = gguf.quants.dequantize(np.ascontiguousarray(rows), kind)
    return np.asarray(values, dtype=np.float32).reshape(shape) * _factor(weight)


def dequantise_expert(stacked: StackedMatrix, expert: int) -> FloatArray:
    """Dequantises the matrix of one expert to float32: (rows, columns)."""
    data = stacked.data.reshape(stacked.num_experts, -1)[expert]
    scales = None if stacked.scales is None else stacked.scales[expert : expert + 1]
    one = replace(stacked, num_experts=1, data=data, scales=scales)
    return np.asarray(dequantise(one)[0], np.float32)


def _factor(weight: Matrix | StackedMatrix) -> FloatArray:
    if isinstance(weight, Matrix):
        return np.asarray(weight.scale, np.float32)
    if weight.scales is None:
        return np.ones((), np.float32)
    return weight.scales[:, None, None]


def softmax(x: FloatArray) -> FloatArray:
    """Computes the softmax over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), dtype=np.float32)


def sigmoid(x: FloatArray) -> FloatArray:
    """Computes 1 / (1 + e^-x)."""
    return np.exp(-np.logaddexp(np.float32(0), -x)).astype(np.float32)


LIMITS = {Activation.LIMITED_SILU_7: 7, Activation.LIMITED_SILU_16: 16}


def gated(kind: Activation, gate: FloatArray, x: FloatArray) -> FloatArray:
    """Computes activation(gate) * x; activations that clamp also change x."""
    if kind is Activation.CLAMPED_SWIGLU:
        x = np.clip(x, -7, 7) + 1
    elif kind in LIMITS:
        x = np.clip(x, -LIMITS[kind], LIMITS[kind])
    return np.asarray(activate(kind, gate) * x, dtype=np.float32)


def activate(kind: Activation, x: FloatArray) -> FloatArray:
    """Applies the activation to each element."""
    if kind is Activation.SILU:
        y = x * sigmoid(x)
    elif kind is Activation.GELU_TANH:
        y = x * sigmoid(np.float32(1.5957691) * (x + np.float32(0.044715) * x**3))
    elif kind is Activation.RELU2:
        y = np.maximum(x, 0) ** 2
    elif kind is Activation.SIGMOID:
        y = sigmoid(x)
    elif kind is Activation.IDENTITY:
        y = x
    elif kind is Activation.CLAMPED_SWIGLU:
        limited = np.minimum(x, 7)
        y = limited * sigmoid(np.float32(1.702) * limited)
    elif kind in LIMITS:
        y = np.minimum(x * sigmoid(x), LIMITS[kind])
    else:
        y = 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5))
    return np.asarray(y, dtype=np.float32)


def unary(
    x: FloatArray, function: Unary, a: float = 0, b: float = 0, c: float = 0, d: float = 0
) -> FloatArray:
    """Computes a function of single values; see Ops.unary."""
    if function is Unary.SIGMOID:
        return sigmoid(x)
    if function is Unary.SOFT_CAP:
        return np.asarray(a * np.tanh(x / np.float32(a)), np.float32)
    if function is Unary.CLAMP:
        return np.clip(x, np.float32(-a), np.float32(a))
    below = b * (np.expm1(np.minimum(x, np.float32(d))) - x)
    return np.asarray(np.where(x > 0, a * x * x, below) + c * x, np.float32)
