"""How fast a file can be read past the page cache; a rate through it would say nothing here."""

from pathlib import Path

from sharpi.errors import UsageError
from sharpi.hardware.disk import measure_disk


def direct_bytes_per_second(path: Path, seconds: float) -> float:
    """Direct reads, 8 in flight, into huge pages as slots are; raises UsageError without them."""
    rate = measure_disk(path, seconds)
    if not rate.is_direct:
        raise UsageError(f"{path}: its file system has no direct reads; use another disk")
    return rate.bytes_per_second
