"""Reads that bypass the page cache: alignment, opening a file, and reads in flight."""

import errno
import os
from pathlib import Path

ALIGNMENT = 4096  # in bytes, for offset, size and address
READS_IN_FLIGHT = 8


def aligned_range(start: int, num_bytes: int) -> tuple[int, int]:
    """Returns start and size of the smallest aligned range around a range of a file, in bytes."""
    first = start // ALIGNMENT * ALIGNMENT
    return first, -(-(start + num_bytes) // ALIGNMENT) * ALIGNMENT - first


def widest_range(start: int, num_bytes: int, count: int) -> int:
    """Returns the bytes of the longest aligned range around one of `count` consecutive pieces.

    The first piece starts at `start`, and each has `num_bytes`.
    """
    return max(aligned_range(start + i * num_bytes, num_bytes)[1] for i in range(count))


def open_direct(path: Path) -> tuple[int, bool]:
    """Opens a file for reads that bypass the page cache, if its file system allows that.

    Returns the descriptor and whether reads bypass the page cache; raises OSError.
    """
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)), hasattr(os, "O_DIRECT")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY), False
