"""Measures how fast this machine reads RAM, and how fast a disk reads.

Reads of a disk bypass the page cache, with several in flight. Their buffers are in huge pages, as
expert slots are: the kernel splits a read into small pages into many requests to the disk, which
can make a virtual disk less than half as fast.
"""

import mmap
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.hardware.memory import probe_memory
from sharpi.ops.cpu.machine_limits import read_bytes_per_second
from sharpi.system.files import READS_IN_FLIGHT, open_direct
from sharpi.system.memory import HUGE_PAGE, huge_pages

SAMPLE_BYTES = 256 << 20  # much larger than caches
# at most a quarter of the free memory: under a tight limit, more would end the process
LARGEST_SHARE = 4
_LEAST_BYTES = 1 << 20


def measure_ram_read(num_threads: int, most_bytes: int = SAMPLE_BYTES) -> float:
    """Returns the bytes per second that `num_threads` threads read, best of a few tries.

    `most_bytes` limits the memory that they read; a small one may fit in the CPU's caches.
    """
    size = max(_LEAST_BYTES, min(most_bytes, _sample_bytes()))
    return read_bytes_per_second([_touched(size)], num_threads)


def _sample_bytes() -> int:
    return max(mmap.PAGESIZE, min(SAMPLE_BYTES, probe_memory().free // LARGEST_SHARE))


def _touched(count: int) -> npt.NDArray[np.uint8]:
    """Returns an array of `count` bytes whose pages are already allocated."""
    return np.ones(count, np.uint8)


CHUNK_BYTES = 1 << 20
TRIAL_BYTES = 128 << 20
SECONDS = 0.5


class DiskRate(Struct, frozen=True):
    """The measured read rate of a disk."""

    bytes_per_second: float
    is_direct: bool  # whether the reads bypassed the page cache


def measure_disk(
    path: Path, seconds: float = SECONDS, in_flight: int = READS_IN_FLIGHT
) -> DiskRate:
    """Returns the rate at which chunks of the file `path` are read in random order.

    `in_flight` reads are under way at a time. For a folder, writes a temporary file there first.
    Raises UsageError if the file is empty or cannot be read, or if the folder has no space.
    """
    try:
        if path.is_dir():
            with _trial_file(path) as trial:
                return _read(trial, seconds, in_flight)
        return _read(path, seconds, in_flight)
    except OSError as error:
        raise UsageError(
            f"{path}: the disk cannot be measured ({error.strerror}); name a readable file or a"
            " folder with room"
        ) from None


@contextmanager
def _trial_file(folder: Path) -> Iterator[Path]:
    """Yields a file of random bytes that are written to the disk, and deletes it afterwards."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".sharpi-disk-") as file:
        random = np.random.default_rng()
        for _ in range(TRIAL_BYTES // CHUNK_BYTES):
            file.write(random.bytes(CHUNK_BYTES))
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name)


def _read(path: Path, seconds: float, in_flight: int) -> DiskRate:
    file, is_direct = open_direct(path)
    try:
        size = os.fstat(file).st_size
        if not size:
            raise UsageError(f"{path}: the file is empty, so there is nothing to measure")
        if not is_direct:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return DiskRate(_timed_reads(file, size, seconds, in_flight), is_direct)
    finally:
        os.close(file)


def _timed_reads(file: int, size: int, seconds: float, in_flight: int) -> float:
    """Returns the rate of threads that read each chunk once, or until `seconds` are over."""
    order = np.random.default_rng(1).permutation(-(-size // CHUNK_BYTES))
    chunks = iter((order * CHUNK_BYTES).tolist())
    start = perf_counter()
    end = start + seconds

    def worker(buffer: memoryview) -> int:
        total = 0
        # A busy machine may take longer than `seconds` to begin, and a rate of 0 is none.
        while (not total or perf_counter() < end) and (offset := next(chunks, None)) is not None:
            total += os.preadv(file, [buffer], offset)
        return total

    with (
        huge_pages(in_flight * HUGE_PAGE) as memory,
        ThreadPoolExecutor(in_flight) as pool,
    ):
        firsts = range(0, len(memory), HUGE_PAGE)
        total = sum(pool.map(worker, [memory[at : at + CHUNK_BYTES] for at in firsts]))
        return total / (perf_counter() - start)
