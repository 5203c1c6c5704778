"""SnapKV's rule in plain NumPy: keep the keys to which the last queries of a prompt attend most.

Source: Li et al., 2024, arXiv 2404.14469.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from reference_numbers import softmax

from sharpi.ops.interface import FloatArray
from sharpi.ops.kv_keep import KEEP_POOL, KEEP_WINDOW

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
