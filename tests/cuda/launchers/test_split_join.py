import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.split_join import join, split
from sharpi.ops.reference.reference import ReferenceOps


def _values(rows: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((rows, width), np.float32)


@pytest.mark.parametrize("widths", [(1,), (5, 3), (64, 300), (2, 1, 70)])
@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (3, 1), (2, 4)])
def test_split(device: Device, widths: tuple[int, ...], tokens: int, groups: int) -> None:
    x = _values(tokens, groups * sum(widths))
    outs = [empty(device, 4 * tokens * groups * width) for width in widths]
    device.launch(split(upload(device, x), outs, widths, runs=tokens * groups))
    for out, want in zip(outs, ReferenceOps().split(x, widths, groups), strict=True):
        np.testing.assert_array_equal(read(device, out, np.float32, want.shape), want)


def test_split_leaves_out(device: Device) -> None:
    """The values around a part of the rows are not written anywhere."""
    x = _values(3, 20)
    out = empty(device, 4 * 3 * 6)
    device.launch(split(upload(device, x), (None, out, None), (4, 6, 10), runs=3))
    np.testing.assert_array_equal(read(device, out, np.float32, (3, 6)), x[:, 4:10])


@pytest.mark.parametrize("widths", [(1, 1), (40, 16), (3, 290)])
@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (3, 1), (2, 4)])
def test_join(device: Device, widths: tuple[int, int], tokens: int, groups: int) -> None:
    first, second = (_values(tokens, groups * width) for width in widths)
    out = empty(device, 4 * tokens * groups * sum(widths))
    spans = upload(device, first), upload(device, second), out
    device.launch(join(*spans, widths=widths, runs=tokens * groups))
    want = ReferenceOps().join(first, second, groups)
    np.testing.assert_array_equal(read(device, out, np.float32, want.shape), want)
