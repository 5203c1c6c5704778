"""Reads past the page cache: what is aligned, how a file is opened, how many run at once."""

import errno
import os
from pathlib import Path

ALIGNMENT = 4096  # bytes: of offset, size and address
READS_IN_FLIGHT = 8


def aligned_range(start: int, num_bytes: int) -> tuple[int, int]:
    """Start and bytes of the smallest aligned range around one of a file."""
    first = start // ALIGNMENT * ALIGNMENT
    return first, -(-(start + num_bytes) // ALIGNMENT) * ALIGNMENT - first


def widest_range(start: int, num_bytes: int, count: int) -> int:
    """Bytes of the longest aligned range around one of `count` pieces that follow each other."""
    return max(aligned_range(start + i * num_bytes, num_bytes)[1] for i in range(count))


def open_direct(path: Path) -> tuple[int, bool]:
    """The file, and whether past the page cache, as far as it can be; raises OSError."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)), hasattr(os, "O_DIRECT")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY), False
