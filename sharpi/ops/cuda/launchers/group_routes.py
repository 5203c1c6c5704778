"""Starts of the listing of items by the expert that computes them."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_BLOCK = 256


def group_routes(
    ids: Span, offsets: Span, items: Span, *, tokens: int, used: int, experts: int
) -> Launch:
    """Expert e has items[offsets[e]:offsets[e + 1]], in ascending order.

    `ids` (T, used), `offsets` (experts + 1,), `items` (T * used,): int32. Item t * used + r is what
    token t has of its r-th expert.
    """
    return Launch(
        Kernel("group_routes", "group_routes"),
        grid=(experts, 1, 1),
        block=_BLOCK,
        arguments=(ids, offsets, items, np.int32(tokens * used), np.int32(experts)),
        writes=frozenset({1, 2}),
    )
