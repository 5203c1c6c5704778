"""The emulator's arithmetic is that of a GPU: conversions to the last bit, packed integers."""

import time
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from cpu_device import CpuDevice
from device_arrays import empty, read, upload
from small_kernels import SmallKernels

KERNELS = SmallKernels("numbers")
DEVICE = CpuDevice()
BLOCK = 256


def mapped(entry: str, x: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns a kernel's result for each element."""
    out = empty(DEVICE, len(x) * np.dtype(dtype).itemsize)
    KERNELS.run(entry, upload(DEVICE, x), out, grid=len(x) // BLOCK, block=BLOCK, writes=[1])
    return read(DEVICE, out, dtype, (len(x),))


@pytest.fixture(scope="module")
def floats() -> npt.NDArray[np.float32]:
    """Returns floats of all magnitudes, of random bits, and halfway between adjacent f16 values."""
    random = np.random.default_rng(0)
    any_bits = random.integers(0, 2**32, 16384, np.uint32).view(np.float32)
    magnitudes = random.standard_normal(16384) * 10.0 ** random.uniform(-9, 5, 16384)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (halves[:-1] + halves[1:]) / 2
    edges = [0, -0.0, np.inf, -np.inf, 65519.99, 65520, 2**-25, 2**-24, 1e-45]
    numbers = any_bits[~np.isnan(any_bits)]
    whole = np.concatenate([numbers, magnitudes, halfway, edges]).astype(np.float32)
    return np.resize(whole, -(-len(whole) // BLOCK) * BLOCK)


def test_every_half() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(
        mapped("half_to_float", bits, np.float32), bits.view(np.float16).astype(np.float32)
    )


def test_floats_to_halves(floats: npt.NDArray[np.float32]) -> None:
    with np.errstate(over="ignore"):
        want = floats.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(mapped("float_to_half", floats, np.uint16), want)


def test_bfloat16(floats: npt.NDArray[np.float32]) -> None:
    bits = mapped("float_to_bfloat16", floats, np.uint16)
    kind = gguf.GGMLQuantizationType.BF16
    normal = np.abs(floats) >= np.finfo(np.float32).tiny  # the package makes zeros of the others
    want = gguf.quants.quantize(floats[None], kind).view(np.uint16)[0]
    np.testing.assert_array_equal(bits[normal], want[normal])
    values = mapped("bfloat16_to_float", bits, np.float32)
    np.testing.assert_array_equal(values.view(np.uint32), bits.astype(np.uint32) << 16)


def test_whole_numbers_are_to_nearest_even_and_within_bounds(
    floats: npt.NDArray[np.float32],
) -> None:
    halves = np.arange(-128, 128, dtype=np.float32) / 2
    x = np.concatenate([floats, halves])
    want = np.clip(np.rint(x.astype(np.float64)), -(2.0**31), 2.0**31 - 1)
    np.testing.assert_array_equal(mapped("to_nearest_int", x, np.int32), want)
    assert mapped("to_nearest_int", np.full(BLOCK, np.nan, np.float32), np.int32)[0] == 0


def test_the_clock_is_nanoseconds_and_never_goes_back() -> None:
    out = empty(DEVICE, BLOCK * 8)
    start = time.monotonic_ns()
    KERNELS.run("clock_now", out, block=BLOCK)
    times = [start, *read(DEVICE, out, np.int64, (BLOCK,)).tolist(), time.monotonic_ns()]
    assert times == sorted(times)


def test_packed_integers() -> None:
    x = np.random.default_rng(1).integers(0, 2**32, (BLOCK, 2), np.uint32)
    out = empty(DEVICE, 7 * BLOCK * 4)
    KERNELS.run("integers", upload(DEVICE, x), out, np.int32(BLOCK), block=BLOCK, writes=[1])
    dot, chosen, right, left, difference, *clamped = read(DEVICE, out, np.uint32, (7, BLOCK))
    a, b = x.view(np.int8).reshape(BLOCK, 2, 4).transpose(1, 0, 2).astype(np.int32)
    np.testing.assert_array_equal(dot.view(np.int32), (a * b).sum(axis=1) - 3)
    both = x[:, 0].astype(np.uint64) | x[:, 1].astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(right, (both >> np.uint64(11)).astype(np.uint32))
    np.testing.assert_array_equal(clamped, [right, x[:, 1]])
    np.testing.assert_array_equal(left, (both << np.uint64(11) >> np.uint64(32)).astype(np.uint32))
    np.testing.assert_array_equal(chosen.view(np.int8).reshape(BLOCK, 4), want_bytes(a, b))
    clipped = np.clip(a - b, -128, 127)
    np.testing.assert_array_equal(difference.view(np.int8).reshape(BLOCK, 4), clipped)


def want_bytes(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Selector 0xb260, from the lowest nibble: byte 0 of a, 6 of both, 2 of a, the sign of 3."""
    return np.stack([a[:, 0], b[:, 2], a[:, 2], np.where(a[:, 3] < 0, -1, 0)], axis=1)
