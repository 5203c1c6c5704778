"""Places the intermediate values of a recorded step in one arena, and reuses freed memory."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.ops.cpu.abi import Rows

ALIGNMENT = 64


class Buffer(Struct):
    """The memory of one intermediate value of a recorded step."""

    num_bytes: int
    width: int  # numbers in a row
    rows: Rows
    first: int  # the index of the first operation that uses it
    last: int  # the index of the last operation that uses it
    kept: bool = False  # its memory is never reused
    offset: int = -1  # bytes from the start of the arena
    row_bytes: int = 0  # bytes of each row; 0 if the buffer has no rows


def assign_offsets(buffers: list[Buffer]) -> int:
    """Sets each buffer's offset in the arena by first fit, and returns the arena's size in bytes.

    Buffers that are not in use at the same time may overlap.
    """
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
