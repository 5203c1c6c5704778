"""Activations rounded to int8, 32 with one scale."""

import numpy as np
import pytest
from for_each import for_each
from kernel_library import quantise

pytestmark = pytest.mark.native


@for_each("count", [1, 15, 16, 32, 96, 255, 256, 257, 2048])
@for_each("size", [1e-30, 1.0, 1e30])
def test_half_a_step_at_most(isa: str, count: int, size: float) -> None:
    rng = np.random.default_rng(count)
    x = (rng.standard_normal(count) * size).astype(np.float32)
    blocks = quantise(isa, x)
    padded = np.zeros(len(blocks) * 256, np.float32)
    padded[:count] = x
    q, scale = blocks["q"].reshape(-1, 32), blocks["scale"].reshape(-1, 1).astype(np.float64)
    padded = padded.reshape(-1, 32)
    np.testing.assert_allclose(scale[:, 0], np.abs(padded).max(axis=1) / 127, rtol=2e-7)
    assert np.all(np.abs(q * scale - padded) <= scale * 0.50002)
    np.testing.assert_array_equal(
        np.abs(q.astype(int)).max(axis=1), np.where(scale > 0, 127, 0)[:, 0]
    )


def test_sums(isa: str) -> None:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32) + 1
    blocks = quantise(isa, x)
    q = blocks["q"].astype(np.int64)
    np.testing.assert_array_equal(blocks["sum16"], q.reshape(-1, 16, 16).sum(axis=2))
    np.testing.assert_array_equal(blocks["sum32"], q.reshape(-1, 8, 32).sum(axis=2))
    if not isa.startswith("avx512"):
        last = q.reshape(-1, 16, 4, 4)[..., 2:]  # of every four columns, the last two
        np.testing.assert_array_equal(blocks["sum8"], last.sum(axis=(2, 3)))


def test_zeros_have_no_scale(isa: str) -> None:
    block = quantise(isa, np.zeros(256, np.float32))[0]
    assert not block["scale"].any()
    assert not block["q"].any()


def test_ties_go_to_even(isa: str) -> None:
    x = np.zeros(256, np.float32)
    x[:5] = [127, 0.5, 1.5, 2.5, -2.5]
    np.testing.assert_array_equal(quantise(isa, x)["q"][0, :5], [127, 0, 2, 2, -2])


@for_each("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows(isa: str, bad: float) -> None:
    x = np.ones(256, np.float32)
    x[100] = bad
    scale = quantise(isa, x)["scale"][0]
    np.testing.assert_array_equal(np.isfinite(scale), np.arange(8) != 100 // 32)
