import numpy as np
import pytest
from device_arrays import read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.attention.heads import scale_by_position


@pytest.mark.parametrize("width", [1, 256, 300])
@pytest.mark.parametrize(
    ("first", "interval", "offset"),
    [(0, 8192, 1), (8190, 8192, 0), (8190, 8192, 1), (999_998, 3, 1)],
)
def test_against_the_reference(
    device: Device, width: int, first: int, interval: int, offset: int
) -> None:
    """Tests positions around the first that is scaled, and far beyond it."""
    positions = np.arange(first, first + 3, dtype=np.int32)
    x = np.random.default_rng(width).standard_normal((3, width), np.float32)
    span, sizes = upload(device, x), {"tokens": 3, "width": width}
    table = upload(device, positions)
    tuned = {"interval": interval, "rate": 0.1, "offset": offset}
    device.launch(scale_by_position(span, table, **sizes, **tuned))
    want = ReferenceOps(positions=positions).scale_by_position(x, **tuned)
    np.testing.assert_allclose(read(device, span, np.float32, x.shape), want, rtol=3e-7)
