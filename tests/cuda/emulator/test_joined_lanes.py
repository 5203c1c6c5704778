"""Without checks, one meeting of lanes stands in for a loop of shuffles, with the same bits."""

import numpy as np
import numpy.typing as npt
import pytest
from cpu_device import CpuDevice
from device_arrays import empty, read, upload

from sharpi.device.launch import Kernel, Launch
from sharpi.resources import kernels_folder

KERNELS = """
KERNEL sums(const float* x, float* out, int width) {
  out[threadIdx.x] = sharpi::sum_lanes(x[threadIdx.x], width);
}
KERNEL integer_maxima(const float* x, float* out, int) {
  out[threadIdx.x] = float(sharpi::max_lanes(int(1000 * x[threadIdx.x])));
}
KERNEL maxima(const float* x, float* out, int) {
  out[threadIdx.x] = sharpi::max_lanes(x[threadIdx.x]);
}
"""
WARPS = 3


def source() -> str:
    """Returns the kernels above behind the product's own headers."""
    common = kernels_folder() / "cuda" / "common"
    headers = [(common / name).read_text() for name in ("types.cuh", "block_sums.cuh")]
    lines = [line for text in headers for line in text.splitlines()]
    kept = [line for line in lines if not line.startswith(("#pragma once", '#include "'))]
    return "\n".join(kept) + KERNELS


def result(
    check: bool, entry: str, x: npt.NDArray[np.float32], width: int
) -> npt.NDArray[np.float32]:
    device = CpuDevice(check=check, texts={"joined": source()})
    out = empty(device, x.nbytes)
    arguments = upload(device, x), out, np.int32(width)
    kernel = Kernel("joined", entry)
    device.launch(Launch(kernel, (1, 1, 1), x.size, arguments, frozenset({1})))
    return read(device, out, np.float32, x.shape)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_sums(width: int) -> None:
    x = np.random.default_rng(width).uniform(1, 2, (32 * WARPS // width, width)).astype(np.float32)
    shuffled, joined = (result(check, "sums", x, width) for check in (True, False))
    np.testing.assert_array_equal(joined, shuffled)
    want = np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape)
    np.testing.assert_allclose(joined, want, rtol=1e-6)


def test_maxima() -> None:
    x = np.random.default_rng(0).standard_normal((WARPS, 32)).astype(np.float32)
    x[1, 5] = np.nan
    want = np.broadcast_to(np.fmax.reduce(x, axis=1)[:, None], x.shape)
    for check in (True, False):
        np.testing.assert_array_equal(result(check, "maxima", x, 32), want)


def test_integer_maxima() -> None:
    x = np.random.default_rng(0).standard_normal((WARPS, 32)).astype(np.float32)
    most = np.trunc(1000 * x).max(axis=1, keepdims=True)
    for check in (True, False):
        found = result(check, "integer_maxima", x, 32)
        np.testing.assert_array_equal(found, np.broadcast_to(most, x.shape))
