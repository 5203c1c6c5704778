"""Rows of every quant type as float32, bit for bit what the gguf package gives."""

import numpy as np
import pytest
from for_each import for_each
from kernel_library import dequantise
from random_weights import KINDS, decoded, random_weights

from sharpi.gguf.quant_types import QuantType as Kind

pytestmark = pytest.mark.native


@pytest.mark.slow
@for_each("kind", KINDS)
def test_rows(isa: str, kind: Kind) -> None:
    for columns in (32, 96, 576, 2048):
        if columns % kind.block_values:
            continue
        for seed in range(8):
            row = random_weights(kind, 1, columns, seed)
            expected = decoded(kind, row)[0]
            np.testing.assert_array_equal(dequantise(isa, kind, row[0], columns), expected)


@for_each("kind", [Kind.F16, Kind.BF16])
def test_every_half(isa: str, kind: Kind) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    expected = decoded(kind, every.view(np.uint8)).view(np.uint32)
    out = dequantise(isa, kind, every.view(np.uint8), len(every))
    finite = np.isfinite(out)
    np.testing.assert_array_equal(out.view(np.uint32)[finite], expected[finite])
    np.testing.assert_array_equal(finite, np.isfinite(expected.view(np.float32)))


def test_every_exponent_of_mxfp4(isa: str) -> None:
    blocks = np.tile(np.arange(16, dtype=np.uint8) * 17, (255, 1))
    rows = np.concatenate([np.arange(255, dtype=np.uint8)[:, None], blocks], axis=1)
    out = dequantise(isa, Kind.MXFP4, rows.reshape(-1), 255 * 32)
    with np.errstate(over="ignore"):
        expected = decoded(Kind.MXFP4, rows.reshape(-1))
    np.testing.assert_array_equal(out, expected)


def test_every_scale_of_nvfp4(isa: str) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(-1, 4)
    row = np.concatenate([codes, np.full((64, 32), 0x31, np.uint8)], axis=1).reshape(1, -1)
    out = dequantise(isa, Kind.NVFP4, row[0], 64 * 64)
    np.testing.assert_array_equal(out, decoded(Kind.NVFP4, row)[0])


def test_every_byte_of_tq1_0(isa: str) -> None:
    blocks = np.zeros((5, 54), np.uint8)
    blocks[:, :52].reshape(-1)[:256] = np.arange(256)
    blocks[:, 52:] = np.array([0.5], np.float16).view(np.uint8)
    row = blocks.reshape(1, -1)
    out = dequantise(isa, Kind.TQ1_0, row[0], 5 * 256)
    np.testing.assert_array_equal(out, decoded(Kind.TQ1_0, row)[0])
