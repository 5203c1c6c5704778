"""Starts of what hands items to the host and takes its values back: experts the GPU has not.

An expert whose address is 0 is one of those. `places` (T * used,) int32 says which of the host's
values is an item's, -1 for what the GPU computes.
"""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_BLOCK = 256


class HostItems(NamedTuple):
    """In page-locked memory: how many items, and for each its expert, its input and its weight."""

    num_items: Span
    experts: Span
    rows: Span
    weights: Span


def host_items(
    ids: Span,
    addresses: Span,
    x: Span,
    weights: Span | None,
    places: Span,
    items: HostItems,
    *,
    tokens: int,
    used: int,
    columns: int,
) -> Launch:
    """Puts together what the host is to compute; ids (T, used), x (T, columns) floats.

    `weights` (T, used): of inputs, which the host then multiplies by them; None is 1.
    """
    return Launch(
        Kernel("host_items", "host_items"),
        grid=(tokens * used, 1, 1),
        block=_BLOCK,
        arguments=(
            *(ids, addresses, x, weights, places, *items),
            *(np.int32(used), np.int32(columns)),
        ),
        writes=frozenset({4, 5, 6, 7, 8}),
    )


def merge(
    values: Span,
    items: Span,
    places: Span,
    ids: Span,
    weights: Span | None,
    out: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    residual: Span | None,
    scale: float,
) -> Launch:
    """out (T, rows) = residual + scale * sum of weight * value, ascending expert ids.

    Values of the GPU (T * used, rows), and of the host, `items` (host items, rows).
    """
    return Launch(
        Kernel("experts_host_merge", "experts_host_merge"),
        grid=(tokens, -(-rows // _BLOCK), 1),
        block=_BLOCK,
        arguments=(
            *(values, items, places, ids, weights, residual, out),
            *(np.float32(scale), np.int32(used), np.int32(rows)),
        ),
        writes=frozenset({6}),
    )
