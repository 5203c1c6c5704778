"""Attention over the positions that an indexer chose, against the NumPy reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attention_models import TABLE, VOCAB, error, projected, projections, random_ids
from for_each import for_each
from msgspec.structs import replace
from replay import AVAILABLE, Native, reference

from sharpi.ops.attention_shape import AttentionShape, IndexShape, RopeTable
from sharpi.ops.cpu.kv_cache import KvCache, kv_bytes
from sharpi.ops.interface import Matrix
from sharpi.settings import F16_TYPES, KvTypes

pytestmark = pytest.mark.native

LATENT = AttentionShape(0, 20, 1, 96, 64, 0.1, values_in_keys=True)
GROUPED = AttentionShape(0, 12, 2, 32, 32, 0.2)
SHAPES = {
    "latent": replace(LATENT, index=IndexShape(10, 32, 0.25, 70), is_sparse=True),
    "latent, many": replace(LATENT, index=IndexShape(3, 32, 0.25, 560), is_sparse=True),
    "latent, odd": replace(
        LATENT, key_dim=44, value_dim=40, index=IndexShape(5, 32, 0.25, 70), is_sparse=True
    ),
    "grouped": replace(GROUPED, index=IndexShape(4, 32, 1.0, 9)),
    "small blocks": replace(
        GROUPED, index=IndexShape(2, 32, 1.0, 5, block=8, num_local=2, is_joint=False)
    ),
    "pages": replace(
        GROUPED, index=IndexShape(2, 32, 1.0, 3, block=128, num_local=1, is_joint=False)
    ),
}
LAYOUTS = {
    "f32": (F16_TYPES, "f32", 1e-3),
    "int8": (F16_TYPES, "int8", 4e-3),
    "q8_0": (KvTypes("q8_0", "q8_0"), "int8", 0),
    "q5_1": (KvTypes("q5_1", "q5_1"), "f32", 0),
}


def integers(columns: int, seed: int) -> Matrix:
    """Returns an embedding of small integers: scores are exact, and many are equal."""
    values = np.random.default_rng(seed).integers(-2, 3, (VOCAB, columns)).astype(np.float32)
    return replace(TABLE, columns=columns, data=values.view(np.uint8).reshape(-1))


def model_of(shape: AttentionShape) -> Callable[[Any], Any]:
    """Two layers of attention; the second one reads the same keys and takes the first's choice."""
    index = shape.index
    assert index is not None
    q, k, v = (projected(TABLE, each) for each in projections(replace(shape, index=None)))
    table = RopeTable((0.5 ** np.arange(shape.key_dim // 2)).astype(np.float32))
    asked, keys = integers(index.num_heads * index.key_dim, 4), integers(index.key_dim, 5)
    weights = integers(index.num_heads, 6)

    def model(ops: Any) -> Any:
        angles = ops.rope_angles(table)
        queries = ops.rope(ops.embed(q, 8.0), shape.num_heads, angles, False)
        rotated = ops.rope(ops.embed(k, 8.0), shape.num_kv_heads, angles, False)
        values = None if shape.values_in_keys else ops.embed(v, 8.0)
        chosen = ops.choose(
            lambda: ops.embed(keys, 1.0),
            lambda: (ops.embed(asked, 1.0), ops.embed(weights, 1.0) if index.is_joint else None),
            shape,
        )
        first = ops.attention(queries, rotated, values, shape, chosen=chosen)
        again = ops.attention(queries, None, None, shape, chosen=chosen)
        return ops.select_outputs(ops.add(first, again, 0.5))

    return model


def native(name: str, layout: str, **options: Any) -> Native:
    types, precision, _ = LAYOUTS[layout]
    shape = SHAPES[name]
    return Native(
        model_of(shape), [shape], precision=precision, kv_types=types, **options  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["f32", "int8"])
@for_each("name", list(SHAPES))
def test_attention_reads_what_was_chosen(name: str, layout: str) -> None:
    """Equal scores go to the lower position, as the reference's stable order says."""
    ids = random_ids(620)
    expected = reference(model_of(SHAPES[name]), [ids])
    assert error(native(name, layout).run([ids]), expected) < LAYOUTS[layout][2]
    plain = reference(model_without(name), [ids])
    assert error(plain, expected) > 10 * LAYOUTS[layout][2]


def model_without(name: str) -> Callable[[Any], Any]:
    """Returns the model with an indexer that chooses all positions."""
    shape = SHAPES[name]
    assert shape.index is not None
    return model_of(replace(shape, index=replace(shape.index, num_chosen=1000)))


@for_each("name", list(SHAPES))
def test_up_to_its_choice_the_bits_are_those_of_full_attention(name: str) -> None:
    index = SHAPES[name].index
    assert index is not None
    ids = random_ids(min(index.num_positions, 500))
    shape = replace(SHAPES[name], index=replace(index, num_chosen=1000))
    whole = Native(model_of(shape), [shape]).run([ids])
    assert np.array_equal(native(name, "int8").run([ids]), whole)


@for_each(
    "layout, name",
    [
        (layout, name)
        for layout, (types, *_) in LAYOUTS.items()
        for name in SHAPES
        if types == F16_TYPES or name != "latent, odd"
    ],
)
def test_prefill_decode_and_threads_give_the_same_bits(layout: str, name: str) -> None:
    ids = random_ids(600)
    whole = native(name, layout).run([ids])
    steps = [ids[:50], ids[50:53], ids[53:65], ids[65:580], *[[i] for i in ids[580:]]]
    for threads in (3, 1):
        replayed = native(name, layout, threads=threads).run(steps, threads=threads)
        assert np.array_equal(replayed, whole)


@pytest.mark.parametrize("instruction_set", AVAILABLE)
def test_every_instruction_set_chooses(instruction_set: str) -> None:
    ids = random_ids(150)
    expected = reference(model_of(SHAPES["latent"]), [ids])
    out = native("latent", "f32", instruction_set=instruction_set).run([ids])
    assert error(out, expected) < 1e-3


@for_each("name", list(SHAPES))
def test_what_others_left_in_a_page_is_not_met(name: str) -> None:
    ids = random_ids(300)
    fresh, used = native(name, "int8"), native(name, "int8")
    used.cache.layers[0][:] = 0xFF
    assert np.array_equal(used.run([ids[:290], *[[i] for i in ids[290:]]]), fresh.run([ids]))


def test_the_keys_of_indexers_are_counted() -> None:
    """A position of DeepSeek V3.2 takes 128 numbers beside its 576."""
    shape = AttentionShape(0, 128, 1, 576, 512, 0.1, values_in_keys=True)
    indexed = replace(shape, index=IndexShape(64, 128, 0.1, 2048))
    assert kv_bytes([indexed], 64) - kv_bytes([shape], 64) == 64 * 2 * 128
    assert KvCache([indexed], 3, F16_TYPES).num_bytes == kv_bytes([indexed], 192)
