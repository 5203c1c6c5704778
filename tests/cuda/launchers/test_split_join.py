import numpy as np
import pytest
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.elementwise import join, quantise, split, with_quantise
from sharpi.ops.cuda.matvec_layout import activation_bytes


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


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("widths", [(128, 64), (32, 32, 64)])
def test_split_quantises_its_first_part(
    device: Device, widths: tuple[int, ...], planes: int
) -> None:
    """So it does with the queries' part that latent attention does not rotate."""
    runs, quantised = 5, []
    x = upload(device, _values(runs, sum(widths)))
    for folds in (False, True):
        outs = [empty(device, 4 * runs * width) for width in widths]
        rows = empty(device, runs * activation_bytes(widths[0], planes))
        cut = split(x, outs, widths, runs=runs)
        quantising = quantise(outs[0], rows, tokens=runs, columns=widths[0], planes=planes)
        both = with_quantise(cut, quantising)
        assert both is not None
        for launch in [both] if folds else [cut, quantising]:
            device.launch(launch)
        quantised.append(
            [read(device, each, np.uint8, (each.num_bytes,)) for each in (*outs, rows)]
        )
    for found, want in zip(*quantised, strict=True):
        np.testing.assert_array_equal(found, want)


def test_what_is_not_quantised(device: Device) -> None:
    """Another part, other rows, and parts that are not whole blocks of 32."""
    x, outs, rows = (empty(device, 4 * 4 * 96) for _ in range(3))
    first, second = outs.part(0, 4 * 4 * 64), outs.part(4 * 4 * 64, 4 * 4 * 32)
    cut = split(x, (first, second), (64, 32), runs=4)
    assert with_quantise(cut, quantise(first, rows, tokens=4, columns=64, planes=1)) is not None
    others = [
        quantise(second, rows, tokens=4, columns=32, planes=1),
        quantise(first, rows, tokens=1, columns=256, planes=1),
        quantise(first, rows, tokens=2, columns=64, planes=1),
    ]
    assert all(with_quantise(cut, other) is None for other in others)
    uneven = split(x, (first, second), (64, 31), runs=4)
    assert with_quantise(uneven, quantise(first, rows, tokens=4, columns=64, planes=1)) is None


@pytest.mark.parametrize("widths", [(1, 1), (40, 16), (3, 290)])
@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (3, 1), (2, 4)])
def test_join(device: Device, widths: tuple[int, int], tokens: int, groups: int) -> None:
    first, second = (_values(tokens, groups * width) for width in widths)
    out = empty(device, 4 * tokens * groups * sum(widths))
    spans = upload(device, first), upload(device, second), out
    device.launch(join(*spans, widths=widths, runs=tokens * groups))
    want = ReferenceOps().join(first, second, groups)
    np.testing.assert_array_equal(read(device, out, np.float32, want.shape), want)
