"""Launches the kernel that groups the items of routes by expert."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_BLOCK = 256


def group_routes(
    ids: Span, offsets: Span, items: Span, *, tokens: int, used: int, experts: int
) -> Launch:
    """Lists items by expert: expert e has items[offsets[e]:offsets[e + 1]], in ascending order.

    `ids` (T, used), `offsets` (experts + 1,) and `items` (T * used,) are int32. Item t * used + r
    is the r-th expert of token t.
    """
    return Launch(
        Kernel("group_routes", "group_routes"),
        grid=(experts, 1, 1),
        block=_BLOCK,
        arguments=(ids, offsets, items, np.int32(tokens * used), np.int32(experts)),
        writes=frozenset({1, 2}),
    )
