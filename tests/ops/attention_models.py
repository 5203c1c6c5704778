"""A model of embedding, projections and attention, for tests of attention alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from replay import matrix

from sharpi.ops.interface import AttentionShape, Matrix, RopeTable

VOCAB, HIDDEN = 50, 96
TABLE = matrix(np.random.default_rng(1), VOCAB, HIDDEN)


def with_nan(token: int) -> Matrix:
    """The embedding with a NaN for one token."""
    values = TABLE.data.view(np.float32).reshape(VOCAB, HIDDEN).copy()
    values[token, 5] = np.nan
    return replace(TABLE, data=values.view(np.uint8).reshape(-1))


def random_ids(length: int) -> list[int]:
    """So many tokens, the same ones each time."""
    return np.random.default_rng(length).integers(0, VOCAB, length).tolist()


def error(out: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(out - expected) / np.linalg.norm(expected))


def attention_model(
    shape: AttentionShape,
    sinks: np.ndarray | None = None,
    *,
    keys_of: Matrix = TABLE,
    values_of: Matrix = TABLE,
) -> Callable[[Any], Any]:
    """One layer of attention; with sinks another follows that reads the first one's keys.

    `keys_of`, `values_of`: embeddings that keys and values are made of.
    """
    rng = np.random.default_rng(2)
    q = matrix(rng, shape.num_heads * shape.key_dim, HIDDEN)
    k = matrix(rng, shape.num_kv_heads * shape.key_dim, HIDDEN)
    v = matrix(rng, shape.num_kv_heads * shape.value_dim, HIDDEN)
    table = RopeTable((0.5 ** np.arange(shape.key_dim // 2)).astype(np.float32))

    def model(ops: Any) -> Any:
        x = ops.embed(TABLE, 8.0)
        (queries,) = ops.linear(x, [q])
        (keys,) = ops.linear(ops.embed(keys_of, 8.0), [k])
        (values,) = ops.linear(ops.embed(values_of, 8.0), [v])
        angles = ops.rope_angles(table)
        queries = ops.rope(queries, shape.num_heads, angles, False)
        keys = ops.rope(keys, shape.num_kv_heads, angles, False)
        stored = None if shape.values_in_keys else values
        attended = ops.attention(queries, keys, stored, shape, sinks)
        if sinks is None:
            return ops.select_outputs(attended)
        again = ops.attention(queries, None, None, shape)
        return ops.select_outputs(ops.add(attended, again, 1.0))

    return model
