import numpy as np
import pytest
from device_arrays import empty, read, upload
from quant_weights import FLOAT_TYPES, TYPES, as_floats, random_weights

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.library import dequantise_rows
from sharpi.ops.cuda.launchers.elementwise import embed


@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_rows_of_the_table(device: Device, quant_type: QuantType) -> None:
    ids = np.array([6, 0, 6, 3], np.int32)
    for columns in (2, 30, 64) if quant_type in FLOAT_TYPES else (quant_type.block_values, 2560):
        table = random_weights(quant_type, 7, columns)
        out = empty(device, 4 * len(ids) * columns)
        spans = upload(device, table), upload(device, ids), out
        sizes = {"tokens": len(ids), "columns": columns}
        device.launch(embed(*spans, quant_type=quant_type, **sizes, scale=0.5))
        expected = 0.5 * as_floats(quant_type, table)[ids]
        values = read(device, out, np.float32, expected.shape)
        # A value with an offset is one product and one difference, rounded once or twice.
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.native
@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_bits_of_the_cpu(device: Device, quant_type: QuantType) -> None:
    """So an answer does not depend on which processor looks the embedding up."""
    columns = max(64, quant_type.block_values)
    table, ids = random_weights(quant_type, 3, columns, seed=1), np.arange(3, dtype=np.int32)
    out = empty(device, 4 * 3 * columns)
    spans = upload(device, table), upload(device, ids), out
    device.launch(embed(*spans, quant_type=quant_type, tokens=3, columns=columns, scale=1.0))
    found = read(device, out, np.float32, (3, columns))
    np.testing.assert_array_equal(found, dequantise_rows(quant_type, table, columns))
