"""Measures how fast a file is read past the page cache, which would hide the disk's rate."""

from pathlib import Path

from sharpi.errors import UsageError
from sharpi.hardware.disk import measure_disk


def direct_bytes_per_second(path: Path, seconds: float) -> float:
    """Returns the rate of 8 direct reads into huge pages; raises UsageError if there are none."""
    rate = measure_disk(path, seconds)
    if not rate.is_direct:
        raise UsageError(f"{path}: its file system has no direct reads; use another disk")
    return rate.bytes_per_second
