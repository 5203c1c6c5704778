"""Places the intermediate values of a recorded step in one arena, and reuses freed memory."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.ops.cpu.abi import Rows

ALIGNMENT = 64


class Buffer(Struct):
    """A value of the recording: `num_bytes` needed from operation `first` to operation `last`.

    `row_bytes`: of each of its rows, one after the other; 0 where it has none.
    """

    num_bytes: int
    width: int
    rows: Rows
    first: int
    last: int
    kept: bool = False
    offset: int = -1
    row_bytes: int = 0


def assign_offsets(buffers: list[Buffer]) -> int:
    """Assigns each buffer an offset by first fit among live buffers; returns the arena's bytes."""
    placed: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (b.first, -b.num_bytes)):
        placed = [other for other in placed if other.kept or other.last >= buffer.first]
        buffer.offset = _first_gap(placed, buffer.num_bytes)
        placed.append(buffer)
        total = max(total, buffer.offset + buffer.num_bytes)
    return total


def _first_gap(placed: list[Buffer], num_bytes: int) -> int:
    at = 0
    for other in sorted(placed, key=lambda b: b.offset):
        if at + num_bytes <= other.offset:
            break
        at = max(at, other.offset + _round_up(other.num_bytes))
    return at


def _round_up(count: int) -> int:
    return (count + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def aligned_bytes(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns zeroed memory that starts on a cache line; the system commits it on first touch."""
    raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes]
