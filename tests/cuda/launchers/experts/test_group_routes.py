import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import random_routes

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.experts.route import group_routes


@pytest.mark.parametrize(
    ("tokens", "used", "experts"), [(1, 1, 1), (9, 2, 5), (40, 8, 16), (70, 6, 200)]
)
def test_items_by_expert(device: Device, tokens: int, used: int, experts: int) -> None:
    ids, _ = random_routes(tokens, experts, used)
    offsets, items = empty(device, 4 * (experts + 1)), empty(device, 4 * ids.size)
    sizes = {"tokens": tokens, "used": used, "experts": experts}
    device.launch(group_routes(upload(device, ids), offsets, items, **sizes))
    counts = np.bincount(ids.reshape(-1), minlength=experts)
    np.testing.assert_array_equal(
        read(device, offsets, np.int32, (experts + 1,)), np.concatenate([[0], counts.cumsum()])
    )
    np.testing.assert_array_equal(
        read(device, items, np.int32, (ids.size,)), np.argsort(ids.reshape(-1), kind="stable")
    )
