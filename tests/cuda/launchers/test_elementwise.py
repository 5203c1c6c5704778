import numpy as np
import pytest
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers import elementwise
from sharpi.ops.interface import Unary

COUNTS = pytest.mark.parametrize("count", [1, 256, 1000])


def _values(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 4, count).astype(np.float32)


@COUNTS
def test_add_scaled(device: Device, count: int) -> None:
    a, b = _values(count, 1), _values(count, 2)
    spans, out = (upload(device, a), upload(device, b)), empty(device, a.nbytes)
    device.launch(elementwise.add_scaled(*spans, out, count=count, scale=0.3))
    want = ReferenceOps().add(a, b, 0.3)
    np.testing.assert_allclose(read(device, out, np.float32, (count,)), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_a", [False, True])
def test_add_scaled_in_place(device: Device, has_a: bool) -> None:
    b = _values(70)
    span = upload(device, b)
    device.launch(elementwise.add_scaled(span if has_a else None, span, span, count=70, scale=2.0))
    np.testing.assert_array_equal(read(device, span, np.float32, (70,)), b * (3 if has_a else 2))


UNARY = [
    (Unary.SIGMOID, ()),
    (Unary.SOFT_CAP, (30.0,)),
    (Unary.CLAMP, (8.0,)),
    (Unary.XIELU, (0.8, 1.3, 0.5, -1e-6)),
]


@COUNTS
@pytest.mark.parametrize(("function", "parameters"), UNARY)
def test_unary(device: Device, count: int, function: Unary, parameters: tuple[float, ...]) -> None:
    x = _values(count) * 10
    span = upload(device, x)
    device.launch(elementwise.unary(span, function, *parameters, count=count))
    want = ReferenceOps().unary(x, function, *parameters)
    np.testing.assert_allclose(read(device, span, np.float32, (count,)), want, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("width", [1, 300])
def test_gather(device: Device, width: int) -> None:
    x = _values(5 * width).reshape(5, width)
    rows = np.array([4, 0, 4], np.int32)
    out = empty(device, 3 * width * 4)
    spans = (upload(device, x), upload(device, rows), out)
    device.launch(elementwise.gather(*spans, outputs=3, width=width))
    np.testing.assert_array_equal(read(device, out, np.float32, (3, width)), x[rows])
