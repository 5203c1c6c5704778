"""Copies of missed experts within the first half of a token's feed-forward."""

import gathered_experts as gathered
import numpy as np
import pytest
from device_arrays import read
from gathered_experts import GatheredExperts
from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.host_items import with_gather

LOADS = [(), ((1, 3, 1),), ((2, 4, 2), (0, 3, 0))]


@pytest.mark.parametrize(
    ("quant_type", "planes"),
    [(QuantType.Q8_0, 1), (QuantType.Q8_0, 2), (QuantType.Q4_K, 1), (QuantType.F16, 0)],
)
@pytest.mark.parametrize("loads", LOADS, ids=len)
def test_bits_are_those_of_two_launches(
    device: Device, quant_type: QuantType, planes: int, loads: tuple[gathered.Load, ...]
) -> None:
    one, two = (
        gathered.run(device, quant_type, planes, loads, folds=folds) for folds in (True, False)
    )
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(one, two)


def test_the_wait_is_measured_and_counted_anew(device: Device) -> None:
    some, seen = GatheredExperts(device, QuantType.Q8_0, 1), []
    for loads in (LOADS[2], LOADS[0], LOADS[1]):
        some.run(loads, folds=True)
        seen.append(read(device, some.words, np.int64, (3,)).tolist())
    assert [count for _, _, count in seen] == [0, 0, 0]
    assert 0 < seen[0][0] == seen[1][0] < seen[2][0]


def test_what_is_not_folded(device: Device) -> None:
    gather, gate_up = GatheredExperts(device, QuantType.Q8_0, 1).launches(LOADS[1])
    tiles, items, _ = gate_up.grid
    assert with_gather(gather, replace(gate_up, grid=(tiles, 2 * items, 1))) is None
    copied, _, waited = gather.arguments[-3:]
    prefetch = replace(gather, arguments=(*gather.arguments[:-3], copied, None, waited))
    assert with_gather(prefetch, gate_up) is None
    assert with_gather(gather, gate_up) is not None
