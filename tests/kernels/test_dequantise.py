"""Rows of every quant type as float32, bit for bit what the gguf package gives."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import quants
from kernel_library import dequantise
from random_weights import KINDS, block_values, random_weights

pytestmark = pytest.mark.native


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows(isa: str, kind: Kind) -> None:
    for columns in (32, 96, 576, 2048):
        if columns % block_values(kind):
            continue
        for seed in range(8):
            row = random_weights(kind, 1, columns, seed)
            expected = quants.dequantize(row, kind)[0]
            np.testing.assert_array_equal(dequantise(isa, kind, row[0], columns), expected)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16])
def test_every_half(isa: str, kind: Kind) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    expected = quants.dequantize(every.view(np.uint8), kind).view(np.uint32)
    out = dequantise(isa, kind, every.view(np.uint8), len(every))
    finite = np.isfinite(out)
    np.testing.assert_array_equal(out.view(np.uint32)[finite], expected[finite])
    np.testing.assert_array_equal(finite, np.isfinite(expected.view(np.float32)))


def test_every_exponent_of_mxfp4(isa: str) -> None:
    blocks = np.tile(np.arange(16, dtype=np.uint8) * 17, (255, 1))
    rows = np.concatenate([np.arange(255, dtype=np.uint8)[:, None], blocks], axis=1)
    out = dequantise(isa, Kind.MXFP4, rows.reshape(-1), 255 * 32)
    with np.errstate(over="ignore"):
        expected = quants.dequantize(rows.reshape(-1), Kind.MXFP4)
    np.testing.assert_array_equal(out, expected)
