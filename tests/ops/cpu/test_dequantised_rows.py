"""Rows that are dequantised outside of steps, as the kernels' tests decode them."""

import numpy as np
import pytest
from random_weights import KINDS, decoded, random_weights

from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.library import dequantise_rows

pytestmark = pytest.mark.native
HEADS, ROWS, COLUMNS = 3, 5, 512


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_of_heads_are_dequantised(kind: QuantType) -> None:
    data = random_weights(kind, HEADS * 2 * ROWS, COLUMNS, seed=3).reshape(HEADS, 2 * ROWS, -1)
    part = data[:, :ROWS]  # not contiguous
    found = dequantise_rows(kind, part, COLUMNS)
    assert found.shape == (HEADS, ROWS, COLUMNS)
    for head, rows in zip(found, part, strict=True):
        np.testing.assert_array_equal(head, decoded(kind, np.ascontiguousarray(rows)))
