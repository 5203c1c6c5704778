"""The demo's Q4_K and Q6_K quantisers against the gguf package's readers."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as QuantType
from gguf import quants
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "demo"))

from k_quants import quantise_q4_k, quantise_q6_k

Quantiser = Callable[[NDArray[np.float32]], NDArray[np.uint8]]

Q4_K = pytest.param(quantise_q4_k, QuantType.Q4_K, id="q4_k")
Q6_K = pytest.param(quantise_q6_k, QuantType.Q6_K, id="q6_k")


def relative_error(values: NDArray[np.float32], read: NDArray[np.float32]) -> float:
    """Root mean square error as a share of the values' root mean square."""
    return float(np.sqrt(((read - values) ** 2).mean() / (values**2).mean()))


@pytest.mark.parametrize(
    ("quantise", "stored", "bound"),
    # Normal values: a 16-level grid over 32 leaves about 7 %, 64 levels over 16 about 1.5 %.
    [(*Q4_K.values, 0.08), (*Q6_K.values, 0.02)],
    ids=["q4_k", "q6_k"],
)
def test_normal_values_come_back_within_the_grid(
    quantise: Quantiser, stored: QuantType, bound: float
) -> None:
    values = np.random.default_rng(0).normal(0, 0.05, (3, 5, 512)).astype(np.float32)
    read = quants.dequantize(quantise(values), stored)
    assert read.shape == values.shape
    assert relative_error(values, read) < bound


@pytest.mark.parametrize(("quantise", "stored"), [Q4_K, Q6_K])
def test_zeros_come_back_exact(quantise: Quantiser, stored: QuantType) -> None:
    values = np.zeros((2, 256), np.float32)
    assert np.array_equal(quants.dequantize(quantise(values), stored), values)


@pytest.mark.parametrize(("quantise", "stored"), [Q4_K, Q6_K])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_sided_blocks_keep_their_sign(
    quantise: Quantiser, stored: QuantType, sign: int
) -> None:
    values = sign * np.random.default_rng(1).uniform(0.5, 1, (4, 256)).astype(np.float32)
    read = quants.dequantize(quantise(values), stored)
    assert relative_error(values, read) < 0.04
    assert (np.sign(read) == sign).all()


def test_q4_k_grid_is_reproduced_exactly() -> None:
    levels = np.tile(np.arange(16, dtype=np.float32), 16)[None]
    values = levels * np.float32(63 / 1024) - np.float32(63 / 256)
    read = quants.dequantize(quantise_q4_k(values), QuantType.Q4_K)
    np.testing.assert_allclose(read, values, atol=1e-6)


def test_q4_k_scales_of_all_eight_blocks_are_kept() -> None:
    widths = np.repeat(np.arange(1, 9, dtype=np.float32), 32)[None]
    values = widths * np.random.default_rng(2).normal(size=(1, 256)).astype(np.float32)
    read = quants.dequantize(quantise_q4_k(values), QuantType.Q4_K)
    errors = np.abs(read - values).reshape(8, 32).max(-1)
    assert (errors < 0.25 * np.arange(1, 9)).all()


@pytest.mark.parametrize(
    ("quantise", "stored", "naive"),
    [(*Q4_K.values, QuantType.Q4_1), (*Q6_K.values, QuantType.Q5_0)],
    ids=["q4_k beats q4_1", "q6_k beats q5_0"],
)
def test_the_search_beats_a_plain_grid(
    quantise: Quantiser, stored: QuantType, naive: QuantType
) -> None:
    values = np.random.default_rng(3).standard_t(4, (64, 256)).astype(np.float32)
    plain = quants.dequantize(quants.quantize(values, naive), naive)
    searched = quants.dequantize(quantise(values), stored)
    assert relative_error(values, searched) < relative_error(values, plain)
