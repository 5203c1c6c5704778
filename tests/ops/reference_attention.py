"""Attention in plain NumPy, with float32 keys and values of one sequence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from reference_numbers import softmax

from sharpi.ops.attention_shape import AttentionShape, Chosen
from sharpi.ops.cpu.kv_cache import KEEP_POOL, KEEP_WINDOW
from sharpi.ops.interface import FloatArray

Array = npt.NDArray[Any]


def kept_slots(
    queries: Array, keys: FloatArray, num_kept: int, scale: float, soft_cap: float = 0.0
) -> npt.NDArray[np.int64]:
    """Returns the indices of the keys that each KV head keeps, ascending: (kv_heads, num_kept).

    `queries` (tokens, heads, dim) belong to the last tokens of `keys` (stored positions, kv_heads,
    dim). Of keys with equal weights, the one with the lower index is kept.
    """
    queries = queries[-KEEP_WINDOW:]
    before = len(keys) - len(queries)
    scores = pooled(window_weights(queries, keys, scale, soft_cap)[:, :before])
    best = np.argsort(-scores, axis=1, kind="stable")[:, : num_kept - len(queries)]
    newest = np.broadcast_to(np.arange(before, len(keys)), (len(best), len(queries)))
    return np.concatenate([np.sort(best, axis=1), newest], axis=1)


def window_weights(queries: Array, keys: FloatArray, scale: float, soft_cap: float = 0.0) -> Array:
    """Returns each key's attention probability, summed over the queries of its KV head.

    The result is (kv_heads, stored positions).
    """
    num_kv_heads = keys.shape[1]
    grouped = queries.reshape(len(queries), num_kv_heads, -1, queries.shape[2])
    scores = np.einsum("thgd,phd->htgp", grouped, keys) * scale
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    newest = np.arange(len(keys) - len(queries), len(keys))
    is_visible = np.arange(len(keys)) <= newest[:, None]
    weights = softmax(np.where(is_visible[None, :, None], scores, -np.inf))
    return np.asarray(weights.sum(axis=(1, 2)))


def pooled(weights: Array) -> Array:
    """Replaces each weight by the largest within KEEP_POOL keys on either side, in the same head.

    `weights` and the result are (kv_heads, stored positions).
    """
    padded = np.pad(weights, ((0, 0), (KEEP_POOL, KEEP_POOL)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * KEEP_POOL + 1, axis=1)
    return np.asarray(windows.max(axis=-1))


class ReferenceAttention:
    """Implements the attention of `Ops` in NumPy.

    `kv` holds the keys and values of each layer, (stored positions, heads, dim). A position is
    stored at index position - `num_dropped`, where `num_dropped` is the number of positions that
    `keep` has dropped.
    """

    positions: npt.NDArray[np.int32]
    kv: dict[int, tuple[FloatArray, FloatArray]]
    num_dropped: int
    newest: dict[int, tuple[AttentionShape, Array]]  # each layer's queries of the last step
    index_keys: dict[int, FloatArray]  # of each layer's indexer, (positions, dim)

    def keep(self, num_kept: int) -> None:
        """Drops all but `num_kept` keys and values per head, chosen by the last step's queries."""
        for layer, (shape, queries) in self.newest.items():
            keys, values = self.kv[layer]
            slots = kept_slots(queries, keys, num_kept, shape.scale, shape.soft_cap).T[..., None]
            self.kv[layer] = (
                np.take_along_axis(keys, slots, 0),
                np.take_along_axis(values, slots, 0),
            )
        self.num_dropped = int(self.positions[-1]) + 1 - num_kept

    def attention(
        self,
        q: Array,
        k: Array | None,
        v: Array | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
        chosen: Chosen[Array] | None = None,
    ) -> Array:
        if k is not None:
            self._remember(k, self._leading_values(k, shape) if v is None else v, shape)
        keys, values = self.kv[shape.layer]
        queries = q.reshape(len(q), shape.num_heads, shape.key_dim)
        self.newest[shape.layer] = shape, queries
        # Products of matrices, each for one head: einsum takes eight times as long.
        groups = q.reshape(len(q), shape.num_kv_heads, -1, shape.key_dim).transpose(1, 2, 0, 3)
        scores = groups @ keys.transpose(1, 2, 0)[:, None] * shape.scale
        scores = scores.reshape(shape.num_heads, len(q), len(keys))
        if shape.soft_cap:
            scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
        scores = np.where(self._visible(len(keys), shape), scores, -np.inf)
        if chosen is not None:
            mask = np.repeat(chosen.blocks, shape.num_heads // chosen.blocks.shape[0], axis=0)
            scores = np.where(mask, scores, -np.inf)
        if sinks is not None:
            sink = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
            scores = np.concatenate([scores, sink], axis=-1)
        weights = softmax(scores)[..., : len(keys)].reshape(*groups.shape[:3], len(keys))
        mixed = weights @ values.transpose(1, 0, 2)[:, None]
        return np.asarray(mixed.transpose(2, 0, 1, 3).reshape(len(q), -1), dtype=np.float32)

    def choose(
        self,
        keys: Callable[[], Array],
        queries: Callable[[], tuple[Array, Array | None]],
        shape: AttentionShape,
    ) -> Chosen[Array]:
        """Returns the chosen positions as a mask (choices, tokens, positions)."""
        index, k, (q, weights) = shape.index, keys(), queries()
        assert index is not None
        before = self.index_keys.get(shape.layer, np.zeros((0, index.key_dim), np.float32))
        stored = np.concatenate([before[: int(self.positions[0])], k])
        self.index_keys[shape.layer] = stored
        heads = q.reshape(len(q), index.num_heads, -1).transpose(1, 0, 2)
        scores = heads @ stored.T * index.scale  # (heads, tokens, positions)
        if weights is not None:
            scores = (weights.T[..., None] * np.maximum(scores, 0)).sum(axis=0, keepdims=True)
        is_visible = np.arange(len(stored)) <= self.positions[:, None]
        scores = np.where(is_visible, scores, -np.inf)
        scores = np.pad(
            scores, ((0, 0), (0, 0), (0, -len(stored) % index.block)), constant_values=-np.inf
        )
        best = scores.reshape(*scores.shape[:2], -1, index.block).max(axis=-1)
        blocks, own = np.arange(best.shape[-1]), self.positions[:, None] // index.block
        is_local = (blocks <= own) & (blocks > own - index.num_local)
        best = np.where(is_local, np.inf, best)
        order = np.argsort(-best, axis=-1, kind="stable")[..., : index.num_chosen]
        mask = np.zeros(best.shape, bool)
        np.put_along_axis(mask, order, True, axis=-1)
        return Chosen(index, np.repeat(mask, index.block, axis=-1)[..., : len(stored)])

    def _leading_values(self, k: Array, shape: AttentionShape) -> Array:
        """Returns the first value_dim numbers of each key, which are its value."""
        return k.reshape(len(k), shape.num_kv_heads, shape.key_dim)[..., : shape.value_dim]

    def _visible(self, num_positions: int, shape: AttentionShape) -> npt.NDArray[np.bool_]:
        """Returns the attention mask (tokens, positions): true where a token sees a position."""
        queries, all_positions = (
            self.positions[:, None] - self.num_dropped,
            np.arange(num_positions),
        )
        first = np.zeros_like(queries)
        if shape.window:
            first = (
                queries // shape.window * shape.window
                if shape.is_chunked
                else queries - shape.window + 1
            )
        return np.asarray((all_positions <= queries) & (all_positions >= first))

    def _remember(self, k: Array, v: Array, shape: AttentionShape) -> None:
        start = int(self.positions[0]) - self.num_dropped
        keys = k.reshape(len(k), shape.num_kv_heads, shape.key_dim)
        values = v.reshape(len(v), shape.num_kv_heads, shape.value_dim)
        if shape.layer in self.kv:
            keys = np.concatenate([self.kv[shape.layer][0][:start], keys])
            values = np.concatenate([self.kv[shape.layer][1][:start], values])
        self.kv[shape.layer] = (keys, values)
