"""Every product of every instruction set, against float64 on what the gguf package decodes."""

from functools import cache

import numpy as np
import pytest
from for_each import for_each
from guarded_memory import GuardedMemory
from kernel_library import EXACT, INT8, Floats, library, matmul, rounded
from numpy.typing import NDArray
from random_weights import FLOAT_KINDS, HALVES, KINDS, QUANTISED_KINDS, as_floats
from random_weights import random_weights as weights_of

from sharpi.gguf.quant_types import QuantType as Kind

pytestmark = pytest.mark.native

# Norm of the error over norm of the result: float32 sums of up to 2048 products.
ARITHMETIC = 1e-6
COLUMNS = (32, 96, 192, 256, 576, 768, 2048)
FLOAT_COLUMNS = (*COLUMNS, 1, 7, 45, 300)
TOKENS = (1, 2, 3, 7, 13, 40)


def columns_of(kind: Kind) -> list[int]:
    every = FLOAT_COLUMNS if kind in FLOAT_KINDS else COLUMNS
    return [n for n in every if n % kind.block_values == 0]


@cache
def random_tokens(tokens: int, columns: int) -> Floats:
    rng = np.random.default_rng([tokens, columns])
    x = rng.standard_normal((tokens, columns), np.float32)
    x.flags.writeable = False
    return x


@cache
def rounded_tokens(isa: str, tokens: int, columns: int) -> NDArray[np.float64]:
    return rounded(isa, random_tokens(tokens, columns))


def relative_error(out: Floats, expected: np.ndarray) -> float:
    return float(np.linalg.norm(out - expected) / np.linalg.norm(expected))


def assert_rounded_product(out: Floats, dense: Floats, x: Floats, seen: Floats) -> None:
    """`out` is x (tokens, columns) . dense (rows, columns), with activations rounded to `seen`."""
    assert relative_error(out, seen @ dense.T) < ARITHMETIC, f"{x.shape[1]} columns"
    # No activation is further from its rounded value than half a step, so no result is than this:
    bound = np.abs(seen - x) @ np.abs(dense).T
    assert np.all(np.abs(out - x @ dense.T) <= bound * 1.001 + 1e-5 * np.abs(out).max())


@pytest.mark.slow
@for_each("rows", [1, 33])
@for_each("kind", QUANTISED_KINDS)
def test_rounded_activations(isa: str, kind: Kind, rows: int) -> None:
    for columns in columns_of(kind):
        weights, x = weights_of(kind, rows, columns), random_tokens(40, columns)
        out, dense = matmul(isa, kind, weights, x), as_floats(kind, weights)
        assert_rounded_product(out, dense, x, rounded_tokens(isa, 40, columns))


@for_each("kind", KINDS)
def test_exact_activations(isa: str, kind: Kind) -> None:
    for columns in columns_of(kind):
        weights, x = weights_of(kind, 33, columns), random_tokens(13, columns)
        out = matmul(isa, kind, weights, x, EXACT)
        expected = x.astype(np.float64) @ as_floats(kind, weights).T
        assert relative_error(out, expected) < ARITHMETIC, f"{columns} columns"


@for_each("kind", FLOAT_KINDS)
def test_float_weights_are_exact_in_either_precision(isa: str, kind: Kind) -> None:
    weights, x = weights_of(kind, 33, 576), random_tokens(3, 576)
    np.testing.assert_array_equal(
        matmul(isa, kind, weights, x, INT8), matmul(isa, kind, weights, x, EXACT)
    )


@for_each("precision", [INT8, EXACT])
@for_each("kind", KINDS)
def test_other_tokens_do_not_change_a_token(isa: str, kind: Kind, precision: int) -> None:
    for columns in (256, 768):
        weights, x = weights_of(kind, 33, columns), random_tokens(40, columns)
        together = matmul(isa, kind, weights, x, precision)
        for tokens in TOKENS:
            some = matmul(isa, kind, weights, x[-tokens:], precision)
            np.testing.assert_array_equal(some, together[-tokens:], f"{tokens} of {columns}")
        reverse = matmul(isa, kind, weights, np.ascontiguousarray(x[::-1]), precision)
        np.testing.assert_array_equal(reverse[::-1], together)


@for_each("kind", KINDS)
def test_rows_do_not_depend_on_their_tile(isa: str, kind: Kind) -> None:
    weights, x = weights_of(kind, 40, 256), random_tokens(3, 256)
    whole = matmul(isa, kind, weights, x)
    np.testing.assert_array_equal(matmul(isa, kind, weights[35:], x), whole[:, 35:])


@for_each("kind", KINDS)
def test_weights_at_any_address(isa: str, kind: Kind) -> None:
    shift = 3
    weights, x = weights_of(kind, 33, 256), random_tokens(3, 256)
    memory = np.zeros(weights.nbytes + shift, np.uint8)
    moved = memory[shift:].reshape(weights.shape)
    moved[:] = weights
    np.testing.assert_array_equal(matmul(isa, kind, moved, x), matmul(isa, kind, weights, x))


@pytest.mark.slow
@for_each("precision", [INT8, EXACT])
@for_each("kind", KINDS)
def test_nothing_is_read_past_the_end(isa: str, kind: Kind, precision: int) -> None:
    for columns in columns_of(kind):
        weights, x = weights_of(kind, 5, columns), random_tokens(3, columns)
        page_of_weights, page_of_tokens = GuardedMemory(weights.nbytes), GuardedMemory(x.nbytes)
        guarded = matmul(
            isa, kind, page_of_weights.holding(weights), page_of_tokens.holding(x), precision
        )
        np.testing.assert_array_equal(guarded, matmul(isa, kind, weights, x, precision))


@for_each("kind", QUANTISED_KINDS)
def test_extreme_codes_do_not_overflow(isa: str, kind: Kind) -> None:
    for code in (0x00, 0x7F, 0x80, 0xFF):
        weights = weights_of(kind, 32, 512, fill=code)
        dense = as_floats(kind, weights)
        for tokens in (2, 40):
            x = np.resize(np.array([[3.0], [-3.0]], np.float32), (tokens, 1)).repeat(512, axis=1)
            error = np.abs(matmul(isa, kind, weights, x) - x @ dense.T)
            assert np.all(error <= ARITHMETIC * np.abs(x) @ np.abs(dense).T), f"{tokens} tokens"


@for_each("bad", [np.nan, np.inf])
@for_each("kind", HALVES)
def test_a_scale_that_is_not_finite_shows_in_its_row(isa: str, kind: Kind, bad: float) -> None:
    weights, x = weights_of(kind, 33, 512), random_tokens(5, 512)
    sound = matmul(isa, kind, weights, x)
    for at in HALVES[kind]:
        damaged = weights.copy()
        damaged[7, at : at + 2] = np.array([bad], np.float16).view(np.uint8)
        out = matmul(isa, kind, damaged, x)
        assert not np.isfinite(out[:, 7]).any()
        np.testing.assert_array_equal(np.delete(out, 7, axis=1), np.delete(sound, 7, axis=1))


def test_unknown_names_are_refused() -> None:
    refuse = library().sharpi_matmul
    nothing = (None, 1, 256, None, 1, None)
    assert refuse(b"mmx", int(Kind.Q8_0), INT8, *nothing) == 1
    assert refuse(b"portable", int(Kind.I32), INT8, *nothing) == 2
    assert refuse(b"portable", int(Kind.Q8_0), INT8, None, 1, 255, None, 1, None) == 3
