import numpy as np
import pytest
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.attention_shape import RopeTable
from sharpi.ops.cuda.launchers.attention.heads import rope_angles


@pytest.mark.parametrize("half", [1, 32, 64, 150])
def test_far_positions(device: Device, half: int) -> None:
    frequencies = (1e6 ** (-np.arange(half) / half)).astype(np.float32)
    ops = ReferenceOps(positions=np.array([0, 1, 4097, 999_999], np.int32))
    angles = empty(device, 4 * 2 * half * 4)
    spans = (upload(device, frequencies), upload(device, ops.positions), angles)
    device.launch(rope_angles(*spans, tokens=4, half=half, scale=1.25))
    want = ops.rope_angles(RopeTable(frequencies, 1.25))
    np.testing.assert_allclose(read(device, angles, np.float32, want.shape), want, atol=4e-7)
