"""Launches the kernels for groups of experts: one packs a group's items, one adds its results."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.matvec_layout import BLOCK


def merge_group(
    values: Span,
    ids: Span,
    item_rows: Span | None,
    weights: Span | None,
    sums: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    experts: range,
    num_experts: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Adds the values of a group of experts to sums (T, rows); groups must come in ascending order.

    After the last of `num_experts` experts the result is that of `experts_grouped.merge`.
    `item_rows` (T * used,) has the row of each item in `values`, -1 for none; without it, row i
    belongs to item i.
    """
    stages = experts.start == 0, experts.stop == num_experts
    return Launch(
        Kernel("experts_group_merge", "experts_group_merge"),
        grid=(tokens, -(-rows // BLOCK), 1),
        block=BLOCK,
        arguments=(
            *(values, ids, item_rows, weights, residual, sums, np.float32(scale)),
            *map(np.int32, (used, rows, experts.start, experts.stop, *stages)),
        ),
        writes=frozenset({5}),
    )


def pack_routes(
    offsets: Span,
    items: Span,
    packed_offsets: Span,
    packed_items: Span,
    item_rows: Span,
    is_over: Span,
    *,
    experts: int,
    num_items: int,
    capacity: int,
) -> Launch:
    """Assigns the items of a group of `experts` adjacent experts to a buffer of `capacity` rows.

    `offsets`, from the first of these experts on, and `items` come from `group_routes`. The kernel
    writes the same lists for the buffer's rows, and to `item_rows` each item's row, or -1 if no row
    is left. It sets `is_over` to 1 if there are more items than rows.
    """
    return Launch(
        Kernel("pack_routes", "pack_routes"),
        grid=(-(-max(num_items, experts + 1) // BLOCK), 1, 1),
        block=BLOCK,
        arguments=(
            *(offsets, items, packed_offsets, packed_items, item_rows, is_over),
            *map(np.int32, (experts, capacity)),
        ),
        writes=frozenset({2, 3, 4, 5}),
    )
