import numpy as np
import pytest
from activation_rows import rounding_error, unpack_rows
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.elementwise import layer_norm
from sharpi.ops.cuda.matvec_layout import activation_bytes

EPSILON = 1e-5


def _case(tokens: int, width: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(width)
    x = rng.normal(2, 3, (tokens, width)).astype(np.float32)
    weight, bias = rng.normal(1, 0.1, (2, width)).astype(np.float32)
    return x, weight, bias, ReferenceOps().layer_norm(x, weight, bias, EPSILON)


@pytest.mark.parametrize(("tokens", "width"), [(1, 2048), (3, 100), (2, 1), (8, 33)])
def test_floats(device: Device, tokens: int, width: int) -> None:
    *arrays, want = _case(tokens, width)
    out = empty(device, want.nbytes)
    spans = (upload(device, array) for array in arrays)
    sizes = {"tokens": tokens, "width": width, "epsilon": EPSILON}
    device.launch(layer_norm(*spans, out, None, **sizes, planes=0))
    floats = read(device, out, np.float32, want.shape)
    np.testing.assert_allclose(floats, want, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize(("tokens", "width"), [(2, 96), (1, 1056)])
def test_quantised(device: Device, tokens: int, width: int, planes: int) -> None:
    *arrays, want = _case(tokens, width)
    out, quantised = (
        empty(device, want.nbytes),
        empty(device, tokens * activation_bytes(width, planes)),
    )
    spans = (upload(device, array) for array in arrays)
    sizes = {"tokens": tokens, "width": width, "epsilon": EPSILON}
    device.launch(layer_norm(*spans, out, quantised, **sizes, planes=planes))
    floats = read(device, out, np.float32, want.shape)
    np.testing.assert_allclose(floats, want, rtol=3e-6, atol=3e-6)
    rows = unpack_rows(
        read(device, quantised, np.uint8, (quantised.num_bytes,)), tokens, width, planes
    )
    assert (np.abs(rows - floats) <= rounding_error(floats, planes)).all()


def test_tokens_do_not_see_each_other(device: Device) -> None:
    x, weight, bias, _ = _case(5, 200)
    outs = []
    for rows in (x, x[3:4]):
        out = empty(device, rows.nbytes)
        spans = (upload(device, array) for array in (rows, weight, bias))
        sizes = {"tokens": len(rows), "width": 200, "epsilon": EPSILON}
        device.launch(layer_norm(*spans, out, None, **sizes, planes=0))
        outs.append(read(device, out, np.float32, rows.shape))
    np.testing.assert_array_equal(outs[0][3], outs[1][0])
