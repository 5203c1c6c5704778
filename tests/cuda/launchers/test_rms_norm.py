import numpy as np
import pytest
from activation_rows import rounding_error, unpack_rows
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.rms_norm import rms_norm
from sharpi.ops.cuda.matvec_layout import activation_bytes

EPSILON = 1e-6


def _case(tokens: int, width: int, groups: int, per_group: bool) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(width)
    x = rng.normal(0, 3, (tokens, groups * width)).astype(np.float32)
    weight = rng.normal(1, 0.1, groups * width if per_group else width).astype(np.float32)
    return x, weight, ReferenceOps().rms_norm(x, weight, EPSILON, groups)


@pytest.mark.parametrize(
    ("tokens", "width", "groups", "per_group"),
    [(1, 2048, 1, False), (3, 100, 1, False), (2, 1, 3, True), (8, 33, 5, False), (1, 48, 2, True)],
)
def test_floats(device: Device, tokens: int, width: int, groups: int, per_group: bool) -> None:
    x, weight, want = _case(tokens, width, groups, per_group)
    out = empty(device, x.nbytes)
    sizes = {"tokens": tokens, "width": width, "groups": groups, "weight_per_group": per_group}
    spans = (upload(device, x), upload(device, weight), out, None)
    device.launch(rms_norm(*spans, **sizes, epsilon=EPSILON, planes=0))
    np.testing.assert_allclose(read(device, out, np.float32, x.shape), want, rtol=3e-6)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize(
    ("tokens", "width", "groups", "per_group"),
    [(2, 96, 1, False), (3, 24, 8, True), (1, 64, 3, True)],
)
def test_quantised(
    device: Device, tokens: int, width: int, groups: int, per_group: bool, planes: int
) -> None:
    """Groups whose size is not a multiple of 32 share quantised blocks; floats are written too."""
    x, weight, want = _case(tokens, width, groups, per_group)
    columns = groups * width
    quantised = empty(device, tokens * activation_bytes(columns, planes))
    sizes = {"tokens": tokens, "width": width, "groups": groups, "weight_per_group": per_group}
    span = upload(device, x)
    weights = upload(device, weight)
    device.launch(rms_norm(span, weights, span, quantised, **sizes, epsilon=EPSILON, planes=planes))
    floats = read(device, span, np.float32, x.shape)
    np.testing.assert_allclose(floats, want, rtol=3e-6)
    rows = unpack_rows(
        read(device, quantised, np.uint8, (quantised.num_bytes,)), tokens, columns, planes
    )
    assert (np.abs(rows - floats) <= rounding_error(floats, planes)).all()


def test_tokens_do_not_see_each_other(device: Device) -> None:
    x, weight, _ = _case(5, 200, 1, False)
    outs = []
    for rows in (x, x[3:4]):
        out = empty(device, rows.nbytes)
        spans = (upload(device, rows), upload(device, weight), out, None)
        sizes = {"tokens": len(rows), "width": 200, "groups": 1, "weight_per_group": False}
        device.launch(rms_norm(*spans, **sizes, epsilon=EPSILON, planes=0))
        outs.append(read(device, out, np.float32, rows.shape))
    np.testing.assert_array_equal(outs[0][3], outs[1][0])
