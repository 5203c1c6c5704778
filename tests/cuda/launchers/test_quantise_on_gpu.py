import numpy as np
import pytest
from activation_rows import rounding_error
from cpu_device import CpuDevice
from device_arrays import empty, read, upload
from products import operand, random_tokens

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.elementwise import quantise
from sharpi.ops.cuda.matvec_layout import activation_bytes


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize(("tokens", "columns"), [(1, 32), (3, 96), (2, 1056)])
def test_within_half_a_step(device: Device, tokens: int, columns: int, planes: int) -> None:
    x = random_tokens(tokens, columns)
    seen = operand(device, x, planes).seen
    assert (np.abs(seen - x) <= rounding_error(x, planes)).all()


def test_peaks_are_whole_and_zeros_are_zero(device: Device) -> None:
    x = np.zeros((2, 64), np.float32)
    x[0, 5], x[0, 40], x[1, 63] = 3.5, -7.25, 1e-38
    seen = operand(device, x, 1).seen
    np.testing.assert_allclose(seen[0], x[0], rtol=1e-6)
    assert (seen[1] == 0).all()


def test_a_token_does_not_depend_on_the_others(device: Device) -> None:
    x = random_tokens(5, 96)
    size = activation_bytes(96, 2)
    rows = []
    for part in (x, x[3:4]):
        out = empty(device, len(part) * size)
        device.launch(quantise(upload(device, part), out, tokens=len(part), columns=96, planes=2))
        rows.append(read(device, out, np.uint8, (len(part), size)))
    np.testing.assert_array_equal(rows[0][3], rows[1][0])


def test_more_rows_than_a_grid_has_in_y(device: Device) -> None:
    """A batch of 512 with 128 heads has 65,536 rows of a few values each."""
    device = CpuDevice(check=False) if isinstance(device, CpuDevice) else device
    rows, size = 512 * 128, activation_bytes(32, 1)
    x = np.zeros((rows, 32), np.float32)
    x[-1] = random_tokens(1, 32)
    out = empty(device, rows * size)
    device.launch(quantise(upload(device, x), out, tokens=rows, columns=32, planes=1))
    alone = empty(device, size)
    device.launch(quantise(upload(device, x[-1:]), alone, tokens=1, columns=32, planes=1))
    found = read(device, out, np.uint8, (rows, size))
    np.testing.assert_array_equal(found[-1], read(device, alone, np.uint8, (size,)))
    assert (found[-2] != found[-1]).any()
