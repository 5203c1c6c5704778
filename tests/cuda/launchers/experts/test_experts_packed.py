"""Experts that are computed in groups, within a limit of rows that may be too small."""

from dataclasses import dataclass

import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import random_routes
from products import random_tokens

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.experts import experts_grouped, route
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.launchers.experts.route import group_routes

TOKENS, EXPERTS, USED, ROWS = 300, 7, 3, 5
ITEMS = TOKENS * USED


@dataclass(frozen=True)
class Lists:
    """The lists that `pack_routes` makes for some experts' items."""

    offsets: np.ndarray
    items: np.ndarray
    item_rows: np.ndarray
    is_over: bool


def _packed(device: Device, ids: np.ndarray, group: range, capacity: int) -> tuple[Lists, Span]:
    offsets, items = empty(device, 4 * (EXPERTS + 1)), empty(device, 4 * ITEMS)
    sizes = {"tokens": TOKENS, "used": USED, "experts": EXPERTS}
    device.launch(group_routes(upload(device, ids), offsets, items, **sizes))
    packed_offsets, packed_items = empty(device, 4 * (len(group) + 1)), empty(device, 4 * capacity)
    item_rows, is_over = empty(device, 4 * ITEMS), upload(device, np.zeros(1, np.int32))
    device.launch(
        route.pack_routes(
            offsets.part(4 * group.start, 4 * (len(group) + 1)),
            *(items, packed_offsets, packed_items, item_rows, is_over),
            experts=len(group),
            num_items=ITEMS,
            capacity=capacity,
        )
    )
    arrays = (
        read(device, span, np.int32, (span.num_bytes // 4,))
        for span in (packed_offsets, packed_items, item_rows, is_over)
    )
    first, second, third, flag = arrays
    return Lists(first, second, third, bool(flag[0])), item_rows


@pytest.mark.parametrize("capacity", [ITEMS, 200])
def test_items_are_listed_as_far_as_there_are_rows(device: Device, capacity: int) -> None:
    ids, _ = random_routes(TOKENS, EXPERTS, USED)
    group = range(2, 5)
    lists, _ = _packed(device, ids, group, capacity)
    wanted = [item for e in group for item in np.flatnonzero(ids.ravel() == e)]
    assert len(wanted) > 200
    assert lists.is_over == (len(wanted) > capacity)
    ends = np.cumsum([0, *(np.count_nonzero(ids == e) for e in group)])
    assert np.array_equal(lists.offsets, np.minimum(ends, capacity))
    kept = wanted[:capacity]
    assert np.array_equal(lists.items[: len(kept)], kept)
    assert np.array_equal(lists.item_rows[kept], range(len(kept)))
    assert (lists.item_rows[wanted[capacity:]] == -1).all()


@pytest.mark.parametrize("has_residual", [True, False])
def test_sums_of_groups_have_the_bits_of_one(device: Device, has_residual: bool) -> None:
    ids, weights = random_routes(TOKENS, EXPERTS, USED)
    values = random_tokens(ITEMS, ROWS)
    residual = upload(device, random_tokens(TOKENS, ROWS)) if has_residual else None
    spans = upload(device, ids), upload(device, weights)
    whole, sums = (empty(device, 4 * TOKENS * ROWS) for _ in range(2))
    items = Items(spans[0], TOKENS, USED)
    total = RoutedSum(items, ROWS, whole, spans[1], residual, 0.7)
    device.launch(experts_grouped.merge(upload(device, values), total))
    for group, is_packed in ((range(3), True), (range(3, 4), False), (range(4, EXPERTS), True)):
        lists, item_rows = _packed(device, ids, group, ITEMS)
        rows = values
        if is_packed:
            rows = np.zeros_like(values)
            rows[: lists.offsets[-1]] = values[lists.items[: lists.offsets[-1]]]
        launch = route.merge_group(
            *(upload(device, rows), item_rows if is_packed else None, total._replace(out=sums)),
            experts=group,
            num_experts=EXPERTS,
        )
        device.launch(launch)
    found, expected = (read(device, span, np.float32, (TOKENS, ROWS)) for span in (sums, whole))
    np.testing.assert_array_equal(found, expected)
