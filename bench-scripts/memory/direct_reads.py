"""Measures a disk's rate by reading a file past the page cache."""

from pathlib import Path

from sharpi.errors import UsageError
from sharpi.hardware.disk import measure_disk


def direct_bytes_per_second(path: Path, seconds: float) -> float:
    """Returns the disk's rate with 8 direct reads in flight, measured for `seconds`.

    Raises UsageError if the file system does not support direct reads.
    """
    rate = measure_disk(path, seconds)
    if not rate.is_direct:
        raise UsageError(f"{path}: its file system has no direct reads; use another disk")
    return rate.bytes_per_second
