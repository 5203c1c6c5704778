"""The operations in plain NumPy: slow, obvious, and what every kernel is compared with.

Weights are dequantised by the gguf package, arithmetic is float32 with float32 KV.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import erf
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from sharpi.ops.interface import (
    Activation,
    AttentionShape,
    Bank,
    ExpertBanks,
    FloatArray,
    Matrix,
    RopeTable,
    Router,
    Scoring,
)

Array = npt.NDArray[Any]


def dequantise(weight: Matrix | Bank) -> FloatArray:
    """The weight as float32: (rows, columns), or (experts, rows, columns) of a bank."""
    kind = gguf.GGMLQuantizationType(int(weight.quant_type))
    shape: tuple[int, ...] = (weight.rows, weight.columns)
    if isinstance(weight, Bank):
        shape = (weight.num_experts, *shape)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = weight.data.reshape(-1, weight.columns // block * block_bytes)
    if kind == gguf.GGMLQuantizationType.BF16:
        halves = rows.view(np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    values = gguf.quants.dequantize(np.ascontiguousarray(rows), kind)
    return np.asarray(values, dtype=np.float32).reshape(shape)


def _softmax(x: FloatArray) -> FloatArray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), dtype=np.float32)


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float32)


def activate(kind: Activation, x: FloatArray) -> FloatArray:
    """The activation, elementwise."""
    if kind is Activation.SILU:
        y = x * _sigmoid(x)
    elif kind is Activation.GELU_TANH:
        y = x * _sigmoid(np.float32(1.5957691) * (x + np.float32(0.044715) * x**3))
    elif kind is Activation.RELU2:
        y = np.maximum(x, 0) ** 2
    else:
        y = 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5))
    return np.asarray(y, dtype=np.float32)


def choose_experts(logits: FloatArray, router: Router) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Expert ids (tokens, used), best first with ties to the lower id, and their weights."""
    scores = logits
    if router.scoring is Scoring.SOFTMAX:
        scores = _softmax(logits)
    elif router.scoring is Scoring.SIGMOID:
        scores = _sigmoid(logits)
    choice = scores if router.bias is None else scores + router.bias
    if router.num_groups > 1:
        grouped = choice.reshape(len(choice), router.num_groups, -1)
        strength = np.sort(grouped, axis=-1)[..., -2:].sum(axis=-1)
        order = np.argsort(-strength, axis=-1, kind="stable")[:, router.groups_used :]
        grouped = grouped.copy()
        np.put_along_axis(grouped, order[..., None], -np.inf, axis=1)
        choice = grouped.reshape(choice.shape)
    ids = np.argsort(-choice, axis=-1, kind="stable")[:, : router.num_used]
    weights = np.take_along_axis(scores, ids, axis=-1)
    if router.scoring is Scoring.SOFTMAX_OF_CHOSEN:
        weights = _softmax(weights)
    if router.normalise:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 2**-14)
    return ids.astype(np.int32), (weights * router.scale).astype(np.float32)


@dataclass
class ReferenceOps:
    """One sequence, evaluated eagerly; `begin` a step, then run the model over this object."""

    ids: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    positions: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    output_rows: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    kv: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    routes: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def begin(self, ids: Sequence[int], position: int, outputs: Sequence[int]) -> None:
        """The next step: `ids` at positions from `position` on, logits for rows `outputs`."""
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

    def attention(self, q: Array, k: Array, v: Array, shape: AttentionShape) -> Array:
        keys, values = self._remember(k, v, shape)
        group = shape.num_heads // shape.num_kv_heads
        queries = q.reshape(len(q), shape.num_heads, shape.key_dim)
        scores = np.einsum("thd,phd->htp", queries, np.repeat(keys, group, axis=1)) * shape.scale
        if shape.soft_cap:
            scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
        distance = self.positions[:, None] - np.arange(len(keys))
        visible = (distance >= 0) & ((distance < shape.window) | (shape.window == 0))
        weights = _softmax(np.where(visible, scores, -np.inf))
        mixed = np.einsum("htp,phd->thd", weights, np.repeat(values, group, axis=1))
        return np.asarray(mixed.reshape(len(q), -1), dtype=np.float32)

    def _remember(self, k: Array, v: Array, shape: AttentionShape) -> tuple[FloatArray, FloatArray]:
        start = int(self.positions[0])
        keys = k.reshape(len(k), shape.num_kv_heads, shape.key_dim)
        values = v.reshape(len(v), shape.num_kv_heads, shape.value_dim)
        if shape.layer in self.kv:
            keys = np.concatenate([self.kv[shape.layer][0][:start], keys])
            values = np.concatenate([self.kv[shape.layer][1][:start], values])
        self.kv[shape.layer] = (keys, values)
        return self.kv[shape.layer]

    def route(self, logits: Array, router: Router) -> tuple[Array, Array]:
        ids, weights = choose_experts(np.asarray(logits, np.float32), router)
        self.routes.append(ids)
        return ids, weights

    def foresee(
        self, x: Array, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        """Everything is in memory: there is nothing to prefetch."""

    def experts(
        self,
        x: Array,
        banks: ExpertBanks,
        activation: Activation,
        route: tuple[Array, Array] | None,
        residual: Array | None,
        scale: float = 1.0,
    ) -> Array:
        ids, weights = route or (np.zeros((len(x), 1), np.int32), np.ones((len(x), 1), np.float32))
        out = np.zeros((len(x), banks.down.rows), np.float32)
        for expert in np.unique(ids):
            tokens, ranks = np.nonzero(ids == expert)
            hidden = self._expert(x[tokens], banks, activation, int(expert))
            out[tokens] += weights[tokens, ranks][:, None] * hidden
        base = 0 if residual is None else residual
        return np.asarray(base + np.float32(scale) * out, dtype=np.float32)

    def _expert(self, x: Array, banks: ExpertBanks, activation: Activation, e: int) -> FloatArray:
        def product(bank: Bank, values: Array) -> FloatArray:
            bias = 0 if bank.bias is None else bank.bias[e]
            return np.asarray(values @ dequantise(bank)[e].T + bias, dtype=np.float32)

        gate = activate(activation, product(banks.gate, x))
        return product(banks.down, gate * product(banks.up, x))

    def gated_expert(
        self, x: Array, banks: ExpertBanks, activation: Activation, weight: Array, residual: Array
    ) -> Array:
        ids = np.zeros((len(x), 1), np.int32)
        return self.experts(x, banks, activation, (ids, weight), residual)

    def add(self, a: Array, b: Array, scale: float) -> Array:
        return np.asarray(a + np.float32(scale) * b, dtype=np.float32)

    def scale(self, x: Array, factor: float) -> Array:
        return np.asarray(x * np.float32(factor), dtype=np.float32)

    def sigmoid(self, x: Array) -> Array:
        return _sigmoid(np.asarray(x, np.float32))

    def soft_cap(self, x: Array, cap: float) -> Array:
        return np.asarray(cap * np.tanh(x / cap), dtype=np.float32)

    def select_outputs(self, x: Array) -> Array:
        return x[self.output_rows]
