"""The reference of the KV cache's types, against the gguf package and what the types promise."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize, quantize
from reference_kv_rounding import round_rows

from sharpi.ops.hadamard import hadamard
from sharpi.settings import KvType

ROWS = np.random.default_rng(3).standard_normal((40, 128)).astype(np.float32)


@pytest.mark.parametrize("kind", ["q8_0", "q5_1", "q5_0", "q4_0"])
def test_types_are_those_of_the_gguf_package(kind: KvType) -> None:
    quant_type = GGMLQuantizationType[kind.upper()]
    expected = dequantize(quantize(ROWS, quant_type), quant_type)
    ours = round_rows(ROWS, kind)
    # ties at the middle between two levels may go either way
    assert np.mean(np.abs(ours - expected) < 1e-6) > 0.998


# The squared error of normally distributed numbers, per type: measured, with a margin of a tenth.
@pytest.mark.parametrize(
    ("kind", "error"),
    [("q8_0", 4e-5), ("q5_1", 2e-3), ("q5_0", 2e-3), ("q4_0", 8e-3), ("iq4_nl", 7e-3)],
)
def test_errors_are_those_of_their_bits(kind: KvType, error: float) -> None:
    assert np.mean((round_rows(ROWS, kind) - ROWS) ** 2) < error


def test_three_bits_lose_what_lloyd_and_max_found() -> None:
    """Their quantiser of eight levels leaves 0.0345 of a normal variance."""
    assert np.mean((round_rows(ROWS, "turbo3") - ROWS) ** 2) == pytest.approx(0.0345, rel=0.1)


@pytest.mark.parametrize("block", [32, 64, 128])
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


@pytest.mark.parametrize("kind", ["q8_0", "q5_1", "q5_0", "q4_0", "iq4_nl", "turbo3"])
def test_zeros_stay_zeros(kind: KvType) -> None:
    assert not round_rows(np.zeros((2, 64), np.float32), kind).any()
