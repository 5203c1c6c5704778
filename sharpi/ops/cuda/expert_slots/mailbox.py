"""Mailbox: page-locked memory through which the GPU requests missed experts from the host."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.experts.host_items import PREDICTED_WORDS, HostItems

_LINE = 64  # bytes of a cache line; no two arrays share one
_WORD = 4

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class HostView(NamedTuple):
    """The arrays of a mailbox in the host's memory.

    An item is a token's input with one of its experts.
    """

    request: Ints  # (1,)
    reply: Ints  # (1,)
    num_items: Ints  # (1,)
    predicted: Ints  # (2 + 32,): the number of predicted experts, their layer, then their ids
    experts: Ints  # (items,)
    rows: Floats  # (items, columns), the inputs
    weights: Floats  # (items,)
    values: Floats  # (items, rows), the results


class Mailbox:
    """Page-locked memory for the GPU's requests of missed experts, and for the host's results.

    A request has at most `max_items` items, each with `columns` inputs and `rows` results. The GPU
    sets `request` to 1 after it has written the items. The host sets `reply` to 1 after it has
    written the results. The reader of either word sets it back to 0.
    """

    def __init__(self, device: Device, max_items: int, columns: int, rows: int) -> None:
        counts = (
            *(1, 1, 1, PREDICTED_WORDS, max_items),
            *(max_items * columns, max_items, max_items * rows),
        )
        ends = np.cumsum([_in_lines(count * _WORD) for count in counts]).tolist()
        memory, host = device.mapped(ends[-1])
        starts = [0, *ends[:-1]]
        self.request, self.reply, num_items, self.predicted, *items, self.values = (
            Span(memory, start, count * _WORD) for start, count in zip(starts, counts, strict=True)
        )
        self.host_items = HostItems(num_items, *items)
        parts = [
            host[start : start + count * _WORD] for start, count in zip(starts, counts, strict=True)
        ]
        ints, floats = [part.view(np.int32) for part in parts[:5]], parts[5:]
        rows_of, weights, values = (part.view(np.float32) for part in floats)
        self.host = HostView(
            ints[0], ints[1], ints[2], ints[3], ints[4],
            rows_of.reshape(max_items, columns), weights, values.reshape(max_items, rows),
        )  # fmt: skip
        for word in ints[:4]:
            word[:] = 0


def _in_lines(num_bytes: int) -> int:
    return -(-num_bytes // _LINE) * _LINE
