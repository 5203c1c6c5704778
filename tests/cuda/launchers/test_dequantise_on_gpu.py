import numpy as np
import pytest
from device_arrays import empty, read, upload
from quant_weights import FLOAT_TYPES, TYPES, as_floats, random_weights

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.elementwise import dequantise


@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_matrix_as_halves(device: Device, quant_type: QuantType) -> None:
    for columns in (6, 32) if quant_type in FLOAT_TYPES else (quant_type.block_values, 768):
        rows = 5
        weights = random_weights(quant_type, rows, columns)
        out = empty(device, 2 * rows * columns)
        sizes = {"rows": rows, "columns": columns}
        device.launch(dequantise(upload(device, weights), out, quant_type=quant_type, **sizes))
        expected = as_floats(quant_type, weights)
        values = read(device, out, np.float16, expected.shape).astype(np.float64)
        # Half a step of f16, and what float32 loses before.
        bound = np.abs(expected) * 2.0**-11 + 1e-6 * np.abs(expected).max()
        assert (np.abs(values - expected) <= bound).all(), columns
