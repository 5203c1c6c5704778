"""The recurrent operations in plain NumPy, token by token; the kernels are compared with them.

States have no padding here: (kernel - 1, channels), and (heads, keys, values).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from reference_numbers import activate, gated, sigmoid

from sharpi.ops.interface import Activation, FloatArray
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    RecurrentShape,
)

Array = npt.NDArray[Any]


def softplus(x: FloatArray) -> FloatArray:
    """Computes ln(1 + e^x)."""
    return np.logaddexp(np.float32(0), x).astype(np.float32)


def unit_length(x: FloatArray, epsilon: float) -> FloatArray:
    """Computes x / sqrt(|x|^2 + epsilon) over the last axis."""
    return np.asarray(x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(epsilon)), np.float32)


def convolve(
    x: FloatArray, weight: FloatArray, bias: FloatArray | None, state: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns bias + sum over j of weight[j] * input[t - (kernel - 1) + j], and the next state.

    The inputs are x (tokens, channels), preceded by the state (kernel - 1, channels), oldest first.
    weight is (kernel, channels).
    """
    inputs = np.concatenate([state, x]).astype(np.float32)
    out = np.zeros_like(x) if bias is None else np.broadcast_to(bias, x.shape).copy()
    for j, row in enumerate(weight):
        out += row * inputs[j : j + len(x)]
    return out, inputs[len(x) :]


def delta_step(
    state: FloatArray, q: FloatArray, k: FloatArray, v: FloatArray, decay: FloatArray, beta: float
) -> tuple[FloatArray, FloatArray]:
    """Computes one token of one head of a gated delta net; returns q S (values,) and the state S.

    S = decay S, then S += k beta (v - k S). state is (keys, values), q and k (keys,), v (values,),
    decay (1,) or (keys,).
    """
    state = decay[:, None] * state
    correction = np.float32(beta) * (v - k @ state)
    state = state + np.outer(k, correction)
    return q @ state, state


def scan_step(
    state: FloatArray, x: FloatArray, b: FloatArray, c: FloatArray, decay: float, dt: float
) -> tuple[FloatArray, FloatArray]:
    """Computes one token of one head of Mamba-2: S = decay S + b dt x.

    state is (state size, head_dim), x (head_dim,), b and c (state size,). Returns c S (head_dim,)
    and the state S.
    """
    state = np.float32(decay) * state + np.outer(b, np.float32(dt) * x)
    return c @ state, state


class ReferenceRecurrent:
    """Implements the recurrent operations of `Ops[Array]`, with `split` and `gated`.

    A step that begins at position 0 starts from states of zeros.
    """

    positions: npt.NDArray[np.int32]
    states: dict[RecurrentShape, FloatArray]

    def split(self, x: Array, widths: Sequence[int], groups: int = 1) -> list[Array]:
        runs = x.reshape(len(x), groups, sum(widths))
        parts = np.split(runs, np.cumsum(widths)[:-1], axis=2)
        return [part.reshape(len(x), -1) for part in parts]

    def gated(self, gate: Array, x: Array, activation: Activation) -> Array:
        return gated(activation, gate, x)

    def _state(self, shape: RecurrentShape, *sizes: int) -> FloatArray:
        if self.positions[0] == 0:
            return np.zeros(sizes, np.float32)
        return self.states[shape].copy()

    def convolve(
        self,
        x: Array,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        *,
        silu: bool,
    ) -> Array:
        state = self._state(shape, shape.kernel - 1, shape.channels)
        out, self.states[shape] = convolve(x, weight, bias, state)
        return activate(Activation.SILU, out) if silu else out

    def delta_net(
        self, qkv: Array, beta: Array, alpha: Array, rates: DecayRates, shape: DeltaNetShape
    ) -> Array:
        key_heads = (shape.num_key_heads, shape.key_dim)
        q, k, v = _heads(qkv, key_heads, key_heads, (shape.num_value_heads, shape.value_dim))
        q = unit_length(q, shape.epsilon) * np.float32(shape.key_dim**-0.5)
        k = unit_length(k, shape.epsilon)
        x = (alpha + rates.dt_bias).reshape(len(alpha), shape.num_value_heads, -1)
        a = rates.a[:, None]
        decay = np.exp(rates.floor * sigmoid(-a * x) if rates.floor < 0 else a * softplus(x))
        beta = sigmoid(beta)
        state = self._state(shape, shape.num_value_heads, shape.key_dim, shape.value_dim)
        out = np.empty_like(v)
        for t, h in np.ndindex(*out.shape[:2]):
            key = shape.key_head(h)
            out[t, h], state[h] = delta_step(
                state[h], q[t, key], k[t, key], v[t, h], decay[t, h], float(beta[t, h])
            )
        self.states[shape] = state
        return out.reshape(len(qkv), -1)

    def mamba2(
        self, xbc: Array, dt: Array, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape
    ) -> Array:
        group_size = (shape.num_groups, shape.state_size)
        x, b, c = _heads(xbc, (shape.num_heads, shape.head_dim), group_size, group_size)
        dt = softplus(dt + rates.dt_bias)
        decay = np.exp(rates.a * dt)
        state = self._state(shape, shape.num_heads, shape.state_size, shape.head_dim)
        out = np.empty_like(x)
        for t, h in np.ndindex(*out.shape[:2]):
            group = h * shape.num_groups // shape.num_heads
            out[t, h], state[h] = scan_step(
                state[h], x[t, h], b[t, group], c[t, group], decay[t, h], float(dt[t, h])
            )
        self.states[shape] = state
        return np.asarray(out + skip[:, None] * x, np.float32).reshape(len(xbc), -1)


def _heads(x: Array, *sizes: tuple[int, int]) -> list[Array]:
    """Splits x (tokens, width) into parts of (tokens, heads, dim)."""
    ends = np.cumsum([heads * dim for heads, dim in sizes])
    parts = np.split(x, ends[:-1], axis=1)
    return [part.reshape(len(x), *size) for part, size in zip(parts, sizes, strict=True)]
