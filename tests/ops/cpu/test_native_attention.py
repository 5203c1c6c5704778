"""Native attention against the NumPy reference, for every layout and precision of pages."""

from typing import NamedTuple

import numpy as np
import pytest
from attention_models import (
    SHAPES,
    attention_model,
    error,
    expected,
    in_blocks,
    random_ids,
    with_nan,
)
from msgspec.structs import replace
from replay import AVAILABLE, Native, reference

from sharpi.ops.cpu.kv_cache import KvCache, KvType, kv_bytes
from sharpi.ops.cpu.program import Rounding

pytestmark = pytest.mark.native


class Layout(NamedTuple):
    """`limit`: of the error against the reference.

    f16 keys and values: 2^-11 each, a little more after the softmax. With int8 activations bfloat16
    may take their place within products, and that of queries and probabilities: 2^-9 each. Against
    keys and values that are q8_0 already, queries are rounded to int8: half a step of 127.
    """

    kv_type: KvType
    precision: Rounding
    limit: float


LAYOUTS = [
    Layout("f16", "f32", 1e-3),
    Layout("f16", "int8", 4e-3),
    Layout("q8_0", "f32", 1e-3),
    Layout("q8_0", "int8", 5e-3),
]


def native(name: str, layout: Layout, **options: object) -> Native:
    shape = SHAPES[name]
    return Native(
        attention_model(shape),
        [shape],
        precision=layout.precision,
        kv_type=layout.kv_type,
        **options,  # type: ignore[arg-type]
    )


CASES = [
    pytest.param(layout, name, id=f"{layout.kv_type} {layout.precision} {name}")
    for layout in LAYOUTS
    for name in SHAPES
    if layout.kv_type == "f16" or in_blocks(name)
]


@pytest.mark.parametrize(("layout", "name"), CASES)
@pytest.mark.parametrize("length", [1, 64, 65, 600])
def test_attention_matches_the_reference(layout: Layout, name: str, length: int) -> None:
    ids = random_ids(length)
    assert (
        error(native(name, layout).run([ids]), expected(name, ids, layout.kv_type)) < layout.limit
    )


@pytest.mark.parametrize("instruction_set", AVAILABLE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["blocks of 32", "values of blocks in keys"])
def test_every_instruction_set_attends(layout: Layout, name: str, instruction_set: str) -> None:
    ids = random_ids(90)
    out = native(name, layout, instruction_set=instruction_set).run([ids])
    assert error(out, expected(name, ids, layout.kv_type)) < layout.limit


@pytest.mark.parametrize("length", [1, 600])
def test_sinks_and_keys_stored_before(length: int) -> None:
    shape, ids = SHAPES["window"], random_ids(length)
    model = attention_model(shape, np.array([-3, 0, 1, 200], np.float32))
    out = Native(model, [shape], precision="f32").run([ids])
    assert error(out, reference(model, [ids])) < LAYOUTS[0].limit


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_prefill_decode_and_threads_give_the_same_bits(layout: Layout, name: str) -> None:
    ids = random_ids(560)
    whole = native(name, layout).run([ids])
    steps = [ids[:1], ids[1:4], ids[4:530], *[[i] for i in ids[530:]]]
    for threads in (3, 1):
        replayed = native(name, layout, threads=threads).run(steps, threads=threads)
        assert np.array_equal(replayed, whole)


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_what_others_left_in_a_page_is_not_met(layout: Layout, name: str) -> None:
    """Stale bytes have all bits set: a NaN as f16, as bfloat16 and as the scale of a block."""
    ids = random_ids(75)
    fresh, used = native(name, layout), native(name, layout)
    used.cache.layers[0][:] = 0xFF
    assert np.array_equal(used.run([ids[:70], *[[i] for i in ids[70:]]]), fresh.run([ids]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", ["keys_of", "values_of"])
def test_a_nan_reaches_every_later_token(layout: Layout, part: str) -> None:
    """A NaN reaches no earlier token, except those that are computed together with its own."""
    shape, ids = SHAPES["blocks of 32"], [token % 49 for token in random_ids(100)]
    ids[70] = 49
    model = attention_model(shape, **{part: with_nan(49)})
    out = Native(model, [shape], precision=layout.precision, kv_type=layout.kv_type).run([ids])
    assert np.isfinite(out[:64]).all()
    assert np.isnan(out[70:]).all()


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_a_page_is_copied_whole(layout: Layout, name: str) -> None:
    ids = random_ids(64)
    runs = native(name, layout)
    runs.run([ids])
    want = runs.run([[7]], position=64)
    source, spare = runs.pages[0], runs.pages[5]
    runs.cache.copy_page(source, spare)
    runs.cache.layers[0][source] = 0
    runs.pages[0] = spare
    assert np.array_equal(runs.run([[7]], position=64), want)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_bytes_are_counted_as_they_are_allocated(kv_type: KvType) -> None:
    shapes = [SHAPES["blocks of 32"], replace(SHAPES["values of blocks in keys"], layer=1)]
    assert KvCache(shapes, 3, kv_type).num_bytes == kv_bytes(shapes, 129, kv_type)
    half, eighth = (kv_bytes(shapes, 64, t) for t in ("f16", "q8_0"))
    assert eighth * 32 == half * 17


def test_tokens_without_outputs_still_fill_the_cache() -> None:
    ids, runs = random_ids(18), native("grouped", LAYOUTS[1])
    want = runs.run([ids])
    runs.run([ids[:-1]], outputs=False)
    assert np.array_equal(runs.run([ids[-1:]], position=len(ids) - 1), want[-1:])
