"""Native attention against the NumPy reference, for every layout and precision of pages."""

from collections.abc import Iterable
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
from for_each import for_each
from gguf import GGMLQuantizationType, dequantize, quantize
from msgspec.structs import replace
from reference_kv_rounding import round_rows
from replay import AVAILABLE, Native, reference

from sharpi.errors import UsageError
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import KV_FORMATS, KvCache, check_kv_types, hadamard, kv_bytes
from sharpi.ops.cpu.program import Rounding
from sharpi.settings import KvType, KvTypes

pytestmark = pytest.mark.native


ROUNDINGS: tuple[Rounding, ...] = ("f32", "int8")


class Layout(NamedTuple):
    """`limit`: of the error against the reference with the same types.

    f16 keys and values: 2^-11 each, a little more after the softmax. With int8 activations bfloat16
    may take their place within products, and that of queries and probabilities: 2^-9 each. Against
    packed keys, queries are then rounded to int8: half a step of 127. So they are with int16. A
    number at the middle between two levels may go either way, which moves it by a step; with few
    bits steps are large.
    """

    types: KvTypes
    precision: Rounding
    limit: float


def both(kind: KvType) -> KvTypes:
    return KvTypes(kind, kind)


WHOLE = [
    Layout(both("f16"), "f32", 1e-3),
    Layout(both("f16"), "int8", 4e-3),
    Layout(both("q8_0"), "f32", 1e-3),
    Layout(both("q8_0"), "int8", 5e-3),
    Layout(both("q8_0"), "int16", 5e-3),
]
FEW_BITS = [
    Layout(types, precision, 1e-2)
    for types in (
        *(both(kind) for kind in KV_FORMATS if kind not in ("f16", "q8_0")),
        KvTypes("q8_0", "q4_0"),
        KvTypes("f16", "q5_1"),
        KvTypes("iq4_nl", "f16"),
    )
    for precision in ROUNDINGS
] + [Layout(both(kind), "int16", 1e-2) for kind in ("q5_1", "q4_0", "turbo3")]
LAYOUTS = [*WHOLE, *FEW_BITS]
# Those of few bits whose kernels differ: with a minimum, and with a scale for a row.
DISTINCT = [*WHOLE, *(each for each in FEW_BITS if str(each.types) in ("q5_1", "turbo3"))]


def native(name: str, layout: Layout, **options: object) -> Native:
    shape = SHAPES[name]
    return Native(
        attention_model(shape),
        [shape],
        precision=layout.precision,
        kv_types=layout.types,
        **options,  # type: ignore[arg-type]
    )


def cases(layouts: list[Layout], names: Iterable[str] = SHAPES) -> list[tuple[Layout, str]]:
    """Lists the layouts with each shape that they can have."""
    return [
        (layout, name)
        for layout in layouts
        for name in names
        if str(layout.types) == "f16" or in_blocks(name)
    ]


FEW = ("wide group of blocks", "values of blocks in keys")
CASES = cases(WHOLE)
DISTINCT_CASES = [*CASES, *cases(DISTINCT[len(WHOLE) :], FEW)]


@pytest.mark.slow
@for_each("layout, name", CASES)
@pytest.mark.parametrize("length", [1, 600])
def test_attention_matches_the_reference(layout: Layout, name: str, length: int) -> None:
    ids = random_ids(length)
    assert error(native(name, layout).run([ids]), expected(name, ids, layout.types)) < layout.limit


@for_each("layout, name", cases(FEW_BITS, FEW))
def test_attention_over_few_bits_matches_the_reference(layout: Layout, name: str) -> None:
    ids = random_ids(150)
    assert error(native(name, layout).run([ids]), expected(name, ids, layout.types)) < layout.limit


@pytest.mark.slow
@pytest.mark.parametrize("instruction_set", AVAILABLE)
@for_each("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["blocks of 32", "values of blocks in keys"])
def test_every_instruction_set_attends(layout: Layout, name: str, instruction_set: str) -> None:
    ids = random_ids(90)
    out = native(name, layout, instruction_set=instruction_set).run([ids])
    assert error(out, expected(name, ids, layout.types)) < layout.limit


@pytest.mark.parametrize("instruction_set", AVAILABLE)
@for_each("kind", ["q8_0", "q4_0"])
def test_packed_types_are_as_fast_with_activations_of_16_bits(
    kind: KvType, instruction_set: str
) -> None:
    """The kernels are those of int8 activations, so that the bits are equal too."""
    ids = random_ids(150)
    short, long = (
        native(
            "wide group of blocks",
            Layout(both(kind), precision, 0),
            instruction_set=instruction_set,
        ).run([ids])
        for precision in ("int8", "int16")
    )
    assert np.array_equal(short, long)


@pytest.mark.parametrize("length", [1, 600])
def test_sinks_and_keys_stored_before(length: int) -> None:
    shape, ids = SHAPES["window"], random_ids(length)
    model = attention_model(shape, np.array([-3, 0, 1, 200], np.float32))
    out = Native(model, [shape], precision="f32").run([ids])
    assert error(out, reference(model, [ids])) < LAYOUTS[0].limit


@pytest.mark.slow
@for_each("layout, name", DISTINCT_CASES)
def test_prefill_decode_and_threads_give_the_same_bits(layout: Layout, name: str) -> None:
    ids = random_ids(545)
    whole = native(name, layout).run([ids])
    steps = [ids[:1], ids[1:4], ids[4:540], *[[i] for i in ids[540:]]]
    for threads in (3, 1):
        replayed = native(name, layout, threads=threads).run(steps, threads=threads)
        assert np.array_equal(replayed, whole)


@for_each("layout, name", DISTINCT_CASES)
def test_what_others_left_in_a_page_is_not_met(layout: Layout, name: str) -> None:
    """Stale bytes have all bits set: a NaN as f16, as bfloat16 and as the scale of a block."""
    ids = random_ids(75)
    fresh, used = native(name, layout), native(name, layout)
    used.cache.layers[0][:] = 0xFF
    assert np.array_equal(used.run([ids[:70], *[[i] for i in ids[70:]]]), fresh.run([ids]))


@for_each("layout", DISTINCT)
@pytest.mark.parametrize("part", ["keys_of", "values_of"])
def test_a_nan_reaches_every_later_token(layout: Layout, part: str) -> None:
    """A NaN reaches no earlier token, except those that are computed together with its own."""
    shape, ids = SHAPES["blocks of 32"], [token % 49 for token in random_ids(100)]
    ids[70] = 49
    model = attention_model(shape, **{part: with_nan(49)})
    out = Native(model, [shape], precision=layout.precision, kv_types=layout.types).run([ids])
    assert np.isfinite(out[:64]).all()
    assert np.isnan(out[70:]).all()


@for_each("layout, name", DISTINCT_CASES)
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


@for_each("types", list(dict.fromkeys(each.types for each in LAYOUTS)))
def test_bytes_are_counted_as_they_are_allocated(types: KvTypes) -> None:
    shapes = [SHAPES["blocks of 32"], replace(SHAPES["values of blocks in keys"], layer=1)]
    assert KvCache(shapes, 3, types).num_bytes == kv_bytes(shapes, 129, types)


@for_each(
    "kind, bits",
    [("q8_0", 8.5), ("q5_1", 6), ("q5_0", 5.5), ("q4_0", 4.5), ("iq4_nl", 4.5), ("turbo3", 3.125)],
)
def test_a_type_takes_its_bits(kind: KvType, bits: float) -> None:
    shapes = [AttentionShape(0, 8, 2, 128, 128, 0.1)]
    assert kv_bytes(shapes, 64, both(kind)) * 16 == kv_bytes(shapes, 64, KvTypes()) * bits


@for_each("types", [KvTypes("q4_0", "f16"), KvTypes("f16", "q8_0")])
def test_heads_that_are_not_blocks_are_refused(types: KvTypes) -> None:
    with pytest.raises(UsageError, match="has blocks of 32 values, but this model's heads have 2"):
        check_kv_types([SHAPES["odd head sizes"]], types)


def test_tokens_without_outputs_still_fill_the_cache() -> None:
    ids, runs = random_ids(18), native("grouped", LAYOUTS[1])
    want = runs.run([ids])
    runs.run([ids[:-1]], outputs=False)
    assert np.array_equal(runs.run([ids[-1:]], position=len(ids) - 1), want[-1:])


ROWS = np.random.default_rng(3).standard_normal((40, 128)).astype(np.float32)


@for_each("kind", ["q8_0", "q5_1", "q5_0", "q4_0"])
def test_types_are_those_of_the_gguf_package(kind: KvType) -> None:
    quant_type = GGMLQuantizationType[kind.upper()]
    expected = dequantize(quantize(ROWS, quant_type), quant_type)
    ours = round_rows(ROWS, kind)
    # ties at the middle between two levels may go either way
    assert np.mean(np.abs(ours - expected) < 1e-6) > 0.998


# The squared error of normally distributed numbers, per type: measured, with a margin of a tenth.
@for_each(
    "kind, error",
    [("q8_0", 4e-5), ("q5_1", 2e-3), ("q5_0", 2e-3), ("q4_0", 8e-3), ("iq4_nl", 7e-3)],
)
def test_errors_are_those_of_their_bits(kind: KvType, error: float) -> None:
    assert np.mean((round_rows(ROWS, kind) - ROWS) ** 2) < error


def test_three_bits_lose_what_lloyd_and_max_found() -> None:
    """Their quantiser of eight levels leaves 0.0345 of a normal variance."""
    assert np.mean((round_rows(ROWS, "turbo3") - ROWS) ** 2) == pytest.approx(0.0345, rel=0.1)


@for_each("block", [32, 64, 128])
def test_the_transform_is_its_own_inverse(block: int) -> None:
    rotated = hadamard(ROWS, block)
    assert np.allclose(hadamard(rotated, block), ROWS, atol=1e-5)
    assert np.allclose((rotated**2).sum(axis=1), (ROWS**2).sum(axis=1), rtol=1e-5)


def test_a_rotation_spreads_what_stands_out() -> None:
    """One large number takes the others' bits; spread over its block it takes few."""
    rows = ROWS.copy()
    rows[:, 5] *= 50
    plain = np.mean((round_rows(rows, "q4_0") - rows) ** 2)
    rotated = np.mean((hadamard(round_rows(hadamard(rows, 128), "q4_0"), 128) - rows) ** 2)
    assert rotated < plain / 2


@for_each("kind", ["q8_0", "q5_1", "q5_0", "q4_0", "iq4_nl", "turbo3"])
def test_zeros_stay_zeros(kind: KvType) -> None:
    assert not round_rows(np.zeros((2, 64), np.float32), kind).any()
