import numpy as np
import pytest
from device_arrays import read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.attention_shape import HeadGate
from sharpi.ops.cuda.launchers.attention.heads import gate_heads


@pytest.mark.parametrize("activation", HeadGate)
@pytest.mark.parametrize(("num_gates", "span"), [(1, 64), (6, 50), (300, 1)])
def test_against_the_reference(
    device: Device, activation: HeadGate, num_gates: int, span: int
) -> None:
    """Tests gates for heads and for single values, among them very large and very small ones."""
    rng = np.random.default_rng(num_gates)
    gate = 4 * rng.standard_normal((3, num_gates), np.float32)
    gate[0, 0], gate[1, 0] = 60, -60
    x = rng.standard_normal((3, num_gates * span), np.float32)
    target, sizes = upload(device, x), {"tokens": 3, "width": x.shape[1]}
    gates = upload(device, gate)
    device.launch(gate_heads(target, gates, **sizes, num_gates=num_gates, activation=activation))
    want = ReferenceOps(positions=np.arange(3, dtype=np.int32)).gate_heads(gate, x, activation)
    np.testing.assert_allclose(read(device, target, np.float32, x.shape), want, rtol=1e-6)
