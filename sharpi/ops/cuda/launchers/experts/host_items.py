"""Launches the kernels that send items of missed experts to the host, and merge its results.

An item is a token with one of its experts. `addresses` (experts,) is 0 for experts that the host
computes. `host_rows` (T * used,) int32 has each item's index among the items of the host, -1 for
items that the GPU computes.
"""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.cuda.launchers.waits import Wait

PREDICTED_WORDS = 2 + 32  # of `host_predictions`
_BLOCK = 256


class HostItems(NamedTuple):
    """The items for the host, in page-locked memory: their number, then their fields.

    Each item has an expert, an input row and a weight.
    """

    num_items: Span
    experts: Span
    rows: Span
    weights: Span


def host_items(
    ids: Span,
    addresses: Span,
    x: Span,
    weights: Span | None,
    host_rows: Span,
    items: HostItems,
    *,
    tokens: int,
    used: int,
    columns: int,
) -> Launch:
    """Lists the items that the host is to compute, from ids (T, used) and floats x (T, columns).

    The host multiplies inputs by `weights` (T, used); None stands for 1.
    """
    return Launch(
        Kernel("host_items", "host_items"),
        grid=(tokens * used, 1, 1),
        block=_BLOCK,
        arguments=(
            *(ids, addresses, x, weights, host_rows, *items),
            *(np.int32(used), np.int32(columns)),
        ),
        writes=frozenset({4, 5, 6, 7, 8}),
    )


def host_predictions(
    ids: Span, addresses: Span, predicted: Span, *, tokens: int, used: int, layer: int
) -> Launch:
    """Writes for the host which experts are predicted for a layer and are not on the GPU.

    `ids` (T, used) are the predicted experts, best first. The kernel writes to `predicted`, int32
    (2 + 32,), the number of listed experts, the layer, and each listed expert once, best first.
    """
    return Launch(
        Kernel("host_predictions", "host_predictions"),
        grid=(1, 1, 1),
        block=32,
        arguments=(
            *(ids, addresses, predicted, np.int32(tokens), np.int32(used), np.int32(layer)),
        ),
        writes=frozenset({2}),
    )


def merge(
    values: Span,
    items: Span,
    host_rows: Span,
    ids: Span,
    weights: Span | None,
    out: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    residual: Span | None,
    scale: float,
    wait: Wait | None = None,
) -> Launch:
    """Computes out (T, rows) = residual + scale * sum of weight * value, in order of expert id.

    `values` (T * used, rows) were computed by the GPU, `items` (host items, rows) by the host. The
    kernel adds the time since `wait.since` to `wait.waited`.
    """
    return Launch(
        Kernel("experts_host_merge", "experts_host_merge"),
        grid=(tokens, -(-rows // _BLOCK), 1),
        block=_BLOCK,
        arguments=(
            *(values, items, host_rows, ids, weights, residual, out),
            *(np.float32(scale), np.int32(used), np.int32(rows)),
            *((None, None) if wait is None else wait),
        ),
        writes=frozenset({6, 11}),
    )
