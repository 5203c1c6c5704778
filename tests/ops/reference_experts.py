"""Routing and experts in plain NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt
from reference_numbers import dequantise_expert, gated, sigmoid, softmax

from sharpi.ops.interface import (
    Activation,
    ExpertWeights,
    FloatArray,
    Matrix,
    Router,
    Scoring,
    StackedMatrix,
)

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
        route: tuple[Array, Array] | None,
        residual: Array | None,
        scale: float = 1.0,
    ) -> Array:
        ids, weights = route or (np.zeros((len(x), 1), np.int32), np.ones((len(x), 1), np.float32))
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

    def gated_expert(
        self,
        x: Array,
        expert_weights: ExpertWeights,
        activation: Activation,
        weight: Array,
        residual: Array,
    ) -> Array:
        ids = np.zeros((len(x), 1), np.int32)
        return self.experts(x, expert_weights, activation, (ids, weight), residual)
