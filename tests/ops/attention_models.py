"""A model of embeddings and attention, for tests of attention alone."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace
from reference_kv_rounding import round_rows
from reference_ops import ReferenceOps
from replay import matrix, reference

from sharpi.ops.attention_shape import AttentionShape, RopeTable
from sharpi.ops.cpu.kv_cache import hadamard, rotation_sizes
from sharpi.ops.interface import Matrix
from sharpi.settings import KvTypes

VOCAB, HIDDEN = 50, 96
TABLE = matrix(np.random.default_rng(1), VOCAB, HIDDEN)
SHAPES = {
    "grouped": AttentionShape(0, 6, 2, 32, 32, 0.2),
    "blocks of 32": AttentionShape(0, 3, 3, 128, 64, 0.08),
    "wide group of blocks": AttentionShape(0, 20, 2, 96, 96, 0.1, window=37),
    "one head each": AttentionShape(0, 3, 3, 32, 48, 0.2),
    "wide group": AttentionShape(0, 20, 2, 16, 16, 0.25),
    "odd head sizes": AttentionShape(0, 4, 2, 22, 24, 0.2),
    "window": AttentionShape(0, 4, 2, 32, 32, 0.2, window=37),
    "soft cap": AttentionShape(0, 4, 2, 32, 32, 0.4, soft_cap=1.5),
    "chunks": AttentionShape(0, 4, 2, 32, 32, 0.2, window=37, is_chunked=True),
    "one KV head": AttentionShape(0, 20, 1, 80, 64, 0.1),
    "values in keys": AttentionShape(0, 20, 1, 80, 64, 0.1, values_in_keys=True),
    "odd values in keys": AttentionShape(0, 3, 1, 44, 40, 0.1, values_in_keys=True),
    "long heads": AttentionShape(0, 4, 1, 544, 512, 0.04),
    "values of blocks in keys": AttentionShape(0, 20, 1, 96, 64, 0.1, values_in_keys=True),
}


def in_blocks(name: str) -> bool:
    """Says if a shape's heads are whole blocks of 32."""
    return SHAPES[name].key_dim % 32 == SHAPES[name].value_dim % 32 == 0


def with_nan(token: int) -> Matrix:
    """The embedding with a NaN for one token."""
    values = TABLE.data.view(np.float32).reshape(VOCAB, HIDDEN).copy()
    values[token, 5] = np.nan
    return replace(TABLE, data=values.view(np.uint8).reshape(-1))


def random_ids(length: int) -> list[int]:
    """Returns `count` tokens, the same ones each time."""
    return np.random.default_rng(length).integers(0, VOCAB, length).tolist()


def error(out: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(out - expected) / np.linalg.norm(expected))


@cache
def projections(shape: AttentionShape) -> tuple[Matrix, Matrix, Matrix]:
    """Returns the matrices of queries, keys and values, the same ones each time."""
    rng = np.random.default_rng(2)
    q = matrix(rng, shape.num_heads * shape.key_dim, HIDDEN)
    k = matrix(rng, shape.num_kv_heads * shape.key_dim, HIDDEN)
    v = matrix(rng, shape.num_kv_heads * shape.value_dim, HIDDEN)
    return q, k, v


def projected(table: Matrix, weights: Matrix) -> Matrix:
    """Returns the embedding whose rows are those of `table`, multiplied with the weights."""
    rows, columns = (each.data.view(np.float32).reshape(-1, HIDDEN) for each in (table, weights))
    data = (rows @ columns.T).view(np.uint8).reshape(-1)
    return replace(table, columns=weights.rows, data=data)


@cache
def query_table(shape: AttentionShape) -> Matrix:
    """Returns the embedding of queries, the same one each time."""
    return projected(TABLE, projections(shape)[0])


def attention_model(
    shape: AttentionShape,
    sinks: np.ndarray | None = None,
    *,
    keys_of: Matrix = TABLE,
    values_of: Matrix = TABLE,
) -> Callable[[Any], Any]:
    """One layer of attention; with sinks another follows that reads the first one's keys.

    A token's queries, keys and values are looked up. `keys_of`, `values_of`: embeddings that keys
    and values are projected from.
    """
    _, k, v = projections(shape)
    of_keys, of_values = projected(keys_of, k), projected(values_of, v)
    table = RopeTable((0.5 ** np.arange(shape.key_dim // 2)).astype(np.float32))

    def model(ops: Any) -> Any:
        queries = ops.embed(query_table(shape), 8.0)
        keys, values = ops.embed(of_keys, 8.0), ops.embed(of_values, 8.0)
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


class RoundedReference(ReferenceOps):
    """The reference with keys and values rotated, rounded to these types, and rotated back."""

    def __init__(self, types: KvTypes) -> None:
        super().__init__()
        self._types = types

    def _remember(self, k: np.ndarray, v: np.ndarray, shape: AttentionShape) -> None:
        for_keys, for_values = rotation_sizes(shape, self._types)
        keys = k.reshape(len(k), shape.num_kv_heads, shape.key_dim)
        values = v.reshape(len(v), shape.num_kv_heads, shape.value_dim)
        if for_keys:
            keys = hadamard(round_rows(hadamard(keys, for_keys), self._types.keys), for_keys)
        if shape.values_in_keys:
            values = keys[..., : shape.value_dim]
        elif for_values:
            rotated = hadamard(values, for_values)
            values = hadamard(round_rows(rotated, self._types.values), for_values)
        super()._remember(keys, values, shape)


def expected(name: str, ids: list[int], types: KvTypes) -> np.ndarray:
    """Returns the reference's result with keys and values of these types."""
    return _expected(name, tuple(ids), types)


@cache
def _expected(name: str, ids: tuple[int, ...], types: KvTypes) -> np.ndarray:
    return reference(attention_model(SHAPES[name]), [ids], RoundedReference(types))
