"""The NEON kernels, compiled for ARM and emulated, with dot products and without.

What holds for this machine's instruction sets (test_matmul.py) holds here, to the same tolerances.
"""

import numpy as np
from emulator import PROCESSORS, EmulatedLibrary
from for_each import for_each
from kernel_library import EXACT, INT8, Floats
from random_weights import FLOAT_KINDS, KINDS, QUANTISED_KINDS, as_floats, decoded
from random_weights import random_weights as weights_of
from test_matmul import ARITHMETIC, assert_rounded_product, random_tokens, relative_error

from sharpi.gguf.quant_types import QuantType as Kind

COLUMNS = (32, 96, 256, 512, 768)
FLOAT_COLUMNS = (*COLUMNS, 1, 45)
SOME_TOKENS = (1, 2, 3, 8)
MOST_TOKENS = 33


def columns_of(kind: Kind) -> list[int]:
    every = FLOAT_COLUMNS if kind in FLOAT_KINDS else COLUMNS
    return [n for n in every if n % kind.block_values == 0]


def test_one_processor_has_dot_products(emulated_processors: dict[str, EmulatedLibrary]) -> None:
    seen = {name: bool(arm.has_dot_product()) for name, arm in emulated_processors.items()}
    assert seen == PROCESSORS
    for arm in emulated_processors.values():
        assert arm.sharpi_instruction_set(b"neon") == b"neon"
        assert arm.sharpi_instruction_set(b"avx2") is None


@for_each("rows", [1, 33])
@for_each("kind", QUANTISED_KINDS)
def test_rounded_activations(arm: EmulatedLibrary, kind: Kind, rows: int) -> None:
    for columns in columns_of(kind):
        weights, x = weights_of(kind, rows, columns), random_tokens(MOST_TOKENS, columns)
        out, dense, seen = arm.matmul(kind, weights, x), as_floats(kind, weights), arm.rounded(x)
        assert_rounded_product(out, dense, x, seen)


@for_each("rows", [1, 33])
@for_each("kind", KINDS)
def test_exact_activations(arm: EmulatedLibrary, kind: Kind, rows: int) -> None:
    for columns in columns_of(kind):
        weights, x = weights_of(kind, rows, columns), random_tokens(MOST_TOKENS, columns)
        expected = x.astype(np.float64) @ as_floats(kind, weights).T
        out = arm.matmul(kind, weights, x, EXACT)
        assert relative_error(out, expected) < ARITHMETIC, f"{columns} columns"


@for_each("precision", [INT8, EXACT])
@for_each("kind", KINDS)
def test_other_tokens_do_not_change_a_token(
    arm: EmulatedLibrary, kind: Kind, precision: int
) -> None:
    weights, x = weights_of(kind, 33, 512), random_tokens(MOST_TOKENS, 512)
    together = arm.matmul(kind, weights, x, precision)
    for tokens in SOME_TOKENS:
        some = arm.matmul(kind, weights, x[-tokens:], precision)
        np.testing.assert_array_equal(some, together[-tokens:], f"{tokens} tokens")


@for_each("kind", KINDS)
def test_rows_do_not_depend_on_their_tile(arm: EmulatedLibrary, kind: Kind) -> None:
    weights, x = weights_of(kind, 40, 256), random_tokens(3, 256)
    np.testing.assert_array_equal(
        arm.matmul(kind, weights[35:], x), arm.matmul(kind, weights, x)[:, 35:]
    )


@for_each("kind", QUANTISED_KINDS)
def test_extreme_codes_do_not_overflow(arm: EmulatedLibrary, kind: Kind) -> None:
    for code in (0x00, 0x7F, 0x80, 0xFF):
        weights = weights_of(kind, 32, 512, fill=code)
        x = np.repeat(np.array([[3.0], [-3.0]], np.float32), 512, axis=1)
        dense = as_floats(kind, weights)
        error = np.abs(arm.matmul(kind, weights, x) - x @ dense.T)
        assert np.all(error <= ARITHMETIC * np.abs(x) @ np.abs(dense).T)


@for_each("kind", QUANTISED_KINDS)
def test_dot_products_change_no_bit(
    emulated_processors: dict[str, EmulatedLibrary], kind: Kind
) -> None:
    weights, x = weights_of(kind, 33, 768), random_tokens(7, 768)
    one, other = (arm.matmul(kind, weights, x) for arm in emulated_processors.values())
    np.testing.assert_array_equal(one, other)


def exactly_rounded(x: Floats) -> tuple[np.ndarray, Floats]:
    """x (32 * parts) -> codes and scales: each product with 127 / peak is rounded once."""
    parts = x.reshape(-1, 32)
    peaks = np.abs(parts).max(axis=1)
    inverse = np.divide(np.float32(127), peaks, out=np.zeros_like(peaks), where=peaks > 0)
    codes = np.rint(parts.astype(np.float64) * inverse.astype(np.float64)[:, None])
    return codes, peaks / np.float32(127)


@for_each("count", [1, 15, 32, 255, 257, 100_000])
@for_each("size", [0.0, 1e-30, 1.0, 1e30])
def test_quantise_gives_these_bits(arm: EmulatedLibrary, count: int, size: float) -> None:
    x = (np.random.default_rng(count).standard_normal(count) * size).astype(np.float32)
    x[3:5] = np.float32(0.5) * np.abs(x).max() / np.float32(127)  # half a step, about
    blocks = arm.quantise(x)
    codes, scales = exactly_rounded(np.pad(x, (0, -count % 256)))
    np.testing.assert_array_equal(blocks["q"].reshape(-1, 32), codes)
    np.testing.assert_array_equal(blocks["scale"].reshape(-1), scales)
    codes = codes.reshape(-1, 256)
    np.testing.assert_array_equal(blocks["sum16"], codes.reshape(-1, 16, 16).sum(axis=2))
    np.testing.assert_array_equal(blocks["sum32"], codes.reshape(-1, 8, 32).sum(axis=2))


@for_each("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows(arm: EmulatedLibrary, bad: float) -> None:
    x = np.ones(256, np.float32)
    x[100] = bad
    scale = arm.quantise(x)["scale"][0]
    np.testing.assert_array_equal(np.isfinite(scale), np.arange(8) != 100 // 32)


@for_each("kind", KINDS)
def test_rows_as_floats(arm: EmulatedLibrary, kind: Kind) -> None:
    for columns in (256, 768):
        row = weights_of(kind, 1, columns)
        expected = decoded(kind, row)[0]
        np.testing.assert_array_equal(arm.dequantise(kind, row[0], columns), expected)
