import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.f16_rows import F16Rows, from_f16, items_to_f16, to_f16


def _to_f16(device: Device, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens, width = x.shape
    out, scales = empty(device, x.size * 2), empty(device, tokens * 4)
    device.launch(to_f16(upload(device, x), F16Rows(out, scales), tokens=tokens, width=width))
    return read(device, out, np.float16, x.shape), read(device, scales, np.float32, (tokens,))


@pytest.mark.parametrize("width", [1, 100, 2048])
def test_there(device: Device, width: int) -> None:
    x = np.random.default_rng(width).normal(size=(5, width)).astype(np.float32)
    x *= np.array([[1], [1e-30], [1e30], [0], [3.4e37]], np.float32)
    halves, scales = _to_f16(device, x)
    assert np.abs(halves.astype(np.float32)).max() <= 4  # 1 but for floats next to overflow
    assert np.abs(halves[:3].astype(np.float32)).max() <= 1
    lost = np.abs(halves.astype(np.float64) * scales[:, None] - x)
    assert (lost <= np.abs(x) * 2**-11 + scales[:, None] * 2.0**-25).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_no_numbers_show(device: Device, broken: float) -> None:
    halves, scales = _to_f16(device, np.array([[1, broken, 2]], np.float32))
    assert np.isfinite(scales).all()
    assert not np.isfinite(halves[0, 1])


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
def test_back(device: Device, has_bias: bool, has_residual: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(3, 300)).astype(np.float16)
    scales, bias = (rng.normal(size=n).astype(np.float32) for n in (3, 300))
    residual = rng.normal(size=(3, 300)).astype(np.float32)
    out = upload(device, residual)
    optional = (upload(device, bias) if has_bias else None, out if has_residual else None)
    spans = (upload(device, y), upload(device, scales), *optional, out)
    device.launch(from_f16(*spans, tokens=3, width=300, scale=0.5, factor=3.0))
    want = (
        0.5 * (3 * y.astype(np.float32) * scales[:, None] + has_bias * bias)
        + has_residual * residual
    )
    np.testing.assert_allclose(
        read(device, out, np.float32, want.shape), want, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_of_some_experts_items(device: Device, is_packed: bool) -> None:
    """Rows of other experts' items are left as they were."""
    x = np.random.default_rng(3).normal(size=(7, 300)).astype(np.float32)
    halves, scales = _to_f16(device, x)
    items = np.array([6, 2, 0, 5, 1, 3, 4], np.int32)
    offsets = upload(device, np.array([0, 2, 2, 5, 7], np.int32)).part(4, 3 * 4)
    before = np.full(x.shape, 7, np.float16), np.full(7, 7, np.float32)
    out = F16Rows(*(upload(device, each) for each in before))
    listed = None if is_packed else upload(device, items)
    sizes = {"experts": 2, "num_items": 7, "width": 300}
    device.launch(items_to_f16(upload(device, x), offsets, listed, out, **sizes))
    rows = np.arange(2, 5) if is_packed else items[2:5]
    for was, span, whole in zip(before, out, (halves, scales), strict=True):
        was[rows] = whole[rows]
        np.testing.assert_array_equal(read(device, span, was.dtype, was.shape), was)
