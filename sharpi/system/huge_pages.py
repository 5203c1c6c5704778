"""Memory in huge pages, if the system has them, for weights and buffers of disk reads."""

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

HUGE_PAGE = 2 << 20


def huge_memory(num_bytes: int) -> memoryview:
    """Allocates writable private memory that is aligned to a huge page.

    It is freed with the last view of it. Raises MemoryError if the system cannot allocate it.
    """
    try:
        mapping = mmap.mmap(-1, num_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{num_bytes} bytes in huge pages: {error}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    start = -_address(mapping) % HUGE_PAGE
    return memoryview(mapping)[start : start + num_bytes]


@contextmanager
def huge_pages(num_bytes: int) -> Iterator[memoryview]:
    """Yields memory from `huge_memory`, with all of its pages already allocated."""
    memory = huge_memory(num_bytes)
    for at in range(0, num_bytes, mmap.PAGESIZE):
        memory[at] = 0
    yield memory


def _address(mapping: mmap.mmap) -> int:
    anchor = ctypes.c_char.from_buffer(mapping)  # keeps the mapping alive until it is dropped
    return ctypes.addressof(anchor)
