"""Helps with reads that bypass the page cache (O_DIRECT): alignment, and opening a file."""

import errno
import os
from pathlib import Path

ALIGNMENT = 4096  # in bytes, for offset, size and address
READS_IN_FLIGHT = 8


def aligned_range(start: int, num_bytes: int) -> tuple[int, int]:
    """Returns offset and size of the smallest aligned range that contains a range of a file."""
    first = start // ALIGNMENT * ALIGNMENT
    return first, -(-(start + num_bytes) // ALIGNMENT) * ALIGNMENT - first


def widest_range(start: int, num_bytes: int, count: int) -> int:
    """Returns the largest size in bytes that an aligned range around one of several pieces has.

    There are `count` consecutive pieces of `num_bytes` each, from the offset `start` on.
    """
    return max(aligned_range(start + i * num_bytes, num_bytes)[1] for i in range(count))


def open_direct(path: Path) -> tuple[int, bool]:
    """Opens a file for reads that bypass the page cache, if its file system supports that.

    Returns the descriptor, and True if reads bypass the page cache. Raises OSError.
    """
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)), hasattr(os, "O_DIRECT")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY), False
