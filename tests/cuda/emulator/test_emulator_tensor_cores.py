"""Tensor cores of the emulator do what the PTX manual says of ldmatrix and mma.sync."""

import numpy as np
import numpy.typing as npt
import pytest
from cpu_device import BACKWARD, FORWARD, CpuDevice
from cpu_kernel import LaunchError
from device_arrays import empty, read, upload
from small_kernels import SmallKernels

KERNELS = SmallKernels("tensor_cores")
ORDERS = pytest.mark.parametrize("order", [FORWARD, BACKWARD, 7])
Bytes = npt.NDArray[np.int8]


def _random(rows: int, columns: int) -> Bytes:
    return np.random.default_rng(rows * columns).integers(-128, 128, (rows, columns), np.int8)


@ORDERS
@pytest.mark.parametrize("columns", [16, 32])
def test_product_of_bytes(columns: int, order: int) -> None:
    """A (16, columns) times B (8, columns) transposed, added to what the result held."""
    device, a, b = CpuDevice(), _random(16, columns), _random(8, columns)
    c = np.arange(128, dtype=np.int32).reshape(16, 8)
    out = upload(device, c)
    spans = out, upload(device, a), upload(device, b)
    KERNELS.run(f"multiply_{columns}", *spans, order=order)
    expected = c + a.astype(np.int32) @ b.astype(np.int32).T
    np.testing.assert_array_equal(read(device, out, np.int32, (16, 8)), expected)


@ORDERS
def test_four_matrices_of_16_bytes(order: int) -> None:
    """Lane l has word l % 4 of row l / 4 of each matrix."""
    device = CpuDevice()
    rows = np.arange(32 * 4, dtype=np.int32).reshape(32, 4)
    out = empty(device, rows.nbytes)
    KERNELS.run("load", out, upload(device, rows), order=order)
    found = read(device, out, np.int32, (32, 4))
    assert found.tolist() == rows.reshape(4, 32).T.tolist()


@ORDERS
def test_product_of_halves(order: int) -> None:
    """A (16, 16) times B (8, 16) transposed, summed in float32."""
    device, rng = CpuDevice(), np.random.default_rng(3)
    a, b = (rng.normal(0, 2, (rows, 16)).astype(np.float16) for rows in (16, 8))
    c = np.arange(128, dtype=np.float32).reshape(16, 8)
    out = upload(device, c)
    KERNELS.run("multiply_halves", out, upload(device, a), upload(device, b), order=order)
    expected = c + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(
        read(device, out, np.float32, (16, 8)), expected, rtol=1e-5, atol=1e-4
    )


@ORDERS
def test_four_matrices_of_8_by_8_halves_are_transposed(order: int) -> None:
    """Lane l has column l // 4 of rows 2 * (l % 4) and the next of each matrix."""
    device = CpuDevice()
    halves = np.arange(32 * 8, dtype=np.int16).reshape(4, 8, 8)
    out = empty(device, halves.nbytes)
    KERNELS.run("load_transposed", out, upload(device, halves), order=order)
    found = read(device, out, np.int16, (32, 4, 2)).transpose(1, 0, 2).reshape(4, 8, 8)
    assert found.tolist() == halves.transpose(0, 2, 1).tolist()


@pytest.mark.parametrize("entry", ["load_unaligned", "load_of_half_a_warp"])
def test_faults(entry: str) -> None:
    device = CpuDevice()
    spans = empty(device, 512), upload(device, np.zeros((33, 4), np.int32))
    with pytest.raises(LaunchError):
        KERNELS.run(entry, *spans)
