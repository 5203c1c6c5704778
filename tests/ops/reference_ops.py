"""ReferenceOps: the operations in plain NumPy, with which tests compare every kernel.

The gguf package dequantises weights; arithmetic and KV cache are float32. Attention and recurrent
operations are in separate modules.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from reference_attention import ReferenceAttention
from reference_numbers import dequantise, dequantise_expert, gated, sigmoid, softmax, unary
from reference_recurrent import ReferenceRecurrent

from sharpi.ops.attention_shape import AttentionShape, HeadGate, RopeTable
from sharpi.ops.interface import (
    Activation,
    ExpertWeights,
    FloatArray,
    Matrix,
    Router,
    Scoring,
    StackedMatrix,
    Unary,
)
from sharpi.ops.recurrent import RecurrentShape

Array = npt.NDArray[Any]
SPARSE_MIXER_NEAR = 0.01


def choose_experts(logits: FloatArray, router: Router) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Chooses experts from logits (tokens, experts); returns their ids and weights, best first.

    Both are (tokens, used). Of equal scores, the lower id is first.
    """
    if router.scoring is Scoring.SPARSE_MIXER:
        chosen, shares = _mix_sparsely(logits, router.num_used)
        return chosen, (shares * router.scale).astype(np.float32)
    scores = logits
    if router.scoring is Scoring.SOFTMAX:
        scores = softmax(logits)
    elif router.scoring is Scoring.SIGMOID:
        scores = sigmoid(logits)
    choice = scores if router.bias is None else scores + router.bias
    if router.num_groups > 1:
        grouped = choice.reshape(len(choice), router.num_groups, -1)
        counted = 1 if router.scoring is Scoring.SOFTMAX else 2
        strength = np.sort(grouped, axis=-1)[..., -counted:].sum(axis=-1)
        order = np.argsort(-strength, axis=-1, kind="stable")[:, router.groups_used :]
        grouped = grouped.copy()
        np.put_along_axis(grouped, order[..., None], -np.inf, axis=1)
        choice = grouped.reshape(choice.shape)
    ids = np.argsort(-choice, axis=-1, kind="stable")[:, : router.num_used]
    weights = np.take_along_axis(scores, ids, axis=-1)
    if router.scoring is Scoring.SOFTMAX_OF_CHOSEN:
        weights = softmax(weights)
    if router.normalise:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 2**-14)
    return ids.astype(np.int32), (weights * router.scale).astype(np.float32)


def _mix_sparsely(logits: FloatArray, num_used: int) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Chooses experts one by one, as `Scoring.SPARSE_MIXER` describes.

    Returns ids and weights, (tokens, num_used) each.
    """
    rows, left = np.arange(len(logits)), logits.copy()
    ids, weights = [], []
    for _ in range(num_used):
        best = left.argmax(axis=-1)
        peak = left[rows, best][:, None]
        distance = (peak - logits) / np.maximum(np.abs(logits), peak)
        near = np.where(distance > 2 * SPARSE_MIXER_NEAR, -np.inf, left)
        weights.append(softmax(near)[rows, best])
        ids.append(best)
        left[rows, best] = -np.inf
    return np.stack(ids, axis=1).astype(np.int32), np.stack(weights, axis=1)


class ReferenceExperts:
    """Implements routes and experts of `Ops[Array]`.

    `routes` has the expert ids (tokens, used) of each MoE layer that the step has computed so far.
    """

    routes: list[npt.NDArray[np.int32]]

    def route(self, logits: Array, router: Router) -> tuple[Array, Array]:
        ids, weights = choose_experts(np.asarray(logits, np.float32), router)
        self.routes.append(ids)
        return ids, weights

    def predict_routes(
        self, x: Array, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        """Does nothing: all experts are in memory."""

    def experts(
        self,
        x: Array,
        expert_weights: ExpertWeights,
        activation: Activation,
        route: tuple[Array | None, Array] | None,
        residual: Array | None,
        scale: float = 1.0,
    ) -> Array:
        ids, weights = route or (None, np.ones((len(x), 1), np.float32))
        ids = np.zeros((len(x), 1), np.int32) if ids is None else ids
        out = np.zeros((len(x), expert_weights.down.rows), np.float32)
        for expert in np.unique(ids):
            tokens, ranks = np.nonzero(ids == expert)
            weight = weights[tokens, ranks][:, None]
            inputs, factor = x[tokens], weight
            if expert_weights.weighs_input:
                inputs, factor = weight * inputs, np.ones_like(weight)
            out[tokens] += factor * self._expert(inputs, expert_weights, activation, int(expert))
        base = 0 if residual is None else residual
        return np.asarray(base + np.float32(scale) * out, dtype=np.float32)

    def _expert(
        self, x: Array, expert_weights: ExpertWeights, activation: Activation, e: int
    ) -> FloatArray:
        def product(stacked: StackedMatrix, values: Array) -> FloatArray:
            bias = 0 if stacked.bias is None else stacked.bias[e]
            return np.asarray(values @ dequantise_expert(stacked, e).T + bias, dtype=np.float32)

        up = product(expert_weights.up, x)
        if expert_weights.gate is None:
            return product(expert_weights.down, gated(activation, up, np.ones_like(up)))
        return product(expert_weights.down, gated(activation, product(expert_weights.gate, x), up))


class ReferenceOps(ReferenceAttention, ReferenceExperts, ReferenceRecurrent):
    """Implements all of `Ops` for one sequence, and computes each operation immediately.

    Call `begin` before each step, then run the model's code on this object.
    """

    def __init__(self, positions: npt.NDArray[np.int32] | None = None) -> None:
        """Creates an empty KV cache; `positions` (tokens,) are for calls without `begin`."""
        self.ids = np.zeros(0, np.int32)
        self.positions = np.zeros(0, np.int32) if positions is None else positions
        self.output_rows = np.zeros(0, np.int32)
        self.kv: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.num_dropped = 0
        self.newest: dict[int, tuple[AttentionShape, Array]] = {}
        self.index_keys: dict[int, FloatArray] = {}
        self.routes: list[npt.NDArray[np.int32]] = []
        self.states: dict[RecurrentShape, FloatArray] = {}

    def begin(self, ids: Sequence[int], position: int, outputs: Sequence[int]) -> None:
        """Starts a step for token ids `ids`, the first of which is at `position`.

        `outputs` are the indices of the tokens whose logits are requested.
        """
        self.ids = np.asarray(ids, np.int32)
        self.positions = np.arange(position, position + len(ids), dtype=np.int32)
        self.output_rows = np.asarray(outputs, np.int32)
        self.routes = []

    def embed(self, table: Matrix, scale: float) -> Array:
        return dequantise(table)[self.ids] * np.float32(scale)

    def rms_norm(self, x: Array, weight: FloatArray, epsilon: float, groups: int = 1) -> Array:
        parts = x.reshape(len(x), groups, -1)
        rms = np.sqrt(np.mean(parts**2, axis=-1, keepdims=True) + np.float32(epsilon))
        scaled = parts / rms * weight.reshape(-1, parts.shape[-1])
        return np.asarray(scaled.reshape(x.shape), dtype=np.float32)

    def linear(self, x: Array, matrices: Sequence[Matrix]) -> list[Array]:
        return [x @ dequantise(m).T + (0 if m.bias is None else m.bias) for m in matrices]

    def linear_add(self, x: Array, matrix: Matrix, residual: Array, scale: float) -> Array:
        return self.add(residual, self.linear(x, [matrix])[0], scale)

    def rope_angles(self, table: RopeTable) -> Array:
        angles = self.positions[:, None].astype(np.float32) * table.frequencies
        return np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.float32(table.scale)

    def rope(self, x: Array, num_heads: int, angles: Array, interleaved: bool) -> Array:
        heads = x.reshape(len(x), num_heads, -1).copy()
        cos, sin = angles[:, None, 0], angles[:, None, 1]
        half = cos.shape[-1]
        first, second = slice(0, half), slice(half, 2 * half)
        if interleaved:
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        a, b = heads[..., first].copy(), heads[..., second].copy()
        heads[..., first], heads[..., second] = a * cos - b * sin, b * cos + a * sin
        return heads.reshape(x.shape)

    def add(self, a: Array, b: Array, scale: float) -> Array:
        return np.asarray(a + np.float32(scale) * b, dtype=np.float32)

    def scale(self, x: Array, factor: float) -> Array:
        return np.asarray(x * np.float32(factor), dtype=np.float32)

    def unary(self, x: Array, function: Unary, *parameters: float) -> Array:
        return unary(np.asarray(x, np.float32), function, *parameters)

    def select_outputs(self, x: Array) -> Array:
        return x[self.output_rows]

    def layer_norm(self, x: Array, weight: FloatArray, bias: FloatArray, epsilon: float) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + np.float32(epsilon))
        return np.asarray(centred / deviation * weight + bias, dtype=np.float32)

    def scale_by_position(self, x: Array, interval: int, rate: float, offset: int) -> Array:
        factor = 1 + rate * np.log1p((self.positions + offset) // interval)
        return np.asarray(x * factor[:, None].astype(np.float32), dtype=np.float32)

    def gate_heads(self, gate: Array, x: Array, activation: HeadGate) -> Array:
        softplus = np.logaddexp(np.float32(0), gate)
        factor = softplus if activation is HeadGate.SOFTPLUS else sigmoid(gate)
        return np.asarray(x * np.repeat(factor, x.shape[1] // gate.shape[1], 1), dtype=np.float32)

    def head_linear(self, x: Array, stacked: StackedMatrix) -> Array:
        heads = x.reshape(len(x), stacked.num_experts, stacked.columns)
        out = np.einsum("thc,hrc->thr", heads, dequantise(stacked))
        return np.asarray(out.reshape(len(x), -1), dtype=np.float32)

    def join(self, first: Array, second: Array, groups: int = 1) -> Array:
        parts = [part.reshape(len(part), groups, -1) for part in (first, second)]
        return np.concatenate(parts, axis=2).reshape(len(first), -1)

    def part(self, x: Array, begin: int, width: int) -> Array:
        return x[:, begin : begin + width]
