"""How fast a file can be read past the page cache, into buffers such as expert slots are.

sharpi's slots lie on huge pages. A read into small pages is many pieces to a disk, and a virtual
disk may give half as much then, so this measures with huge pages, too.
"""

import ctypes
import mmap
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sharpi.errors import UsageError

CHUNK_BYTES = 1 << 20
READS_IN_FLIGHT = 8
_HUGE_PAGE = 2 << 20


def direct_bytes_per_second(path: Path, seconds: float) -> float:
    """Reads chunks at random places until time is up, or until each was read once.

    Raises UsageError for a file that is too small, or a file system without direct reads.
    """
    offsets = list(range(0, path.stat().st_size - CHUNK_BYTES + 1, CHUNK_BYTES))
    if not offsets:
        raise UsageError(f"{path}: too small to measure its disk; take a model larger than RAM")
    random.shuffle(offsets)
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise UsageError(f"{path}: no direct reads ({error.strerror}); use another disk") from None
    with mmap.mmap(-1, (READS_IN_FLIGHT + 1) * _HUGE_PAGE, flags=mmap.MAP_PRIVATE) as memory:
        try:
            return _timed(file, memory, iter(offsets), seconds)
        finally:
            os.close(file)


def _timed(file: int, memory: mmap.mmap, offsets: Iterator[int], seconds: float) -> float:
    memory.madvise(mmap.MADV_HUGEPAGE)
    buffers = list(_buffers(memory))
    start = time.perf_counter()

    def read(buffer: memoryview) -> int:
        total = 0
        while time.perf_counter() - start < seconds and (at := next(offsets, None)) is not None:
            total += os.preadv(file, [buffer], at)
        return total

    try:
        with ThreadPoolExecutor(READS_IN_FLIGHT) as pool:
            total = sum(pool.map(read, buffers))
        return total / (time.perf_counter() - start)
    finally:
        for buffer in buffers:
            buffer.release()


def _buffers(memory: mmap.mmap) -> Iterator[memoryview]:
    """A buffer at the beginning of each huge page, touched so that the page is there."""
    anchor = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(anchor)
    del anchor  # the mapping cannot be closed while somebody holds it
    first = -address % _HUGE_PAGE
    for index in range(READS_IN_FLIGHT):
        begin = first + index * _HUGE_PAGE
        memory[begin] = 1
        with memoryview(memory) as whole:
            yield whole[begin : begin + CHUNK_BYTES]
