"""Memory from the system: huge pages, pages that can be given back, mappings, the page cache."""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

HUGE_PAGE = 2 << 20


def huge_memory(num_bytes: int) -> memoryview:
    """Allocates memory aligned to a huge page, freed with its last view; or MemoryError."""
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


class ReturnableMemory:
    """Memory `array` (num_bytes,) of zeros, which the system allocates on first use in small pages.

    Huge pages are avoided: more memory would be allocated than is used, and the kernel might fill
    returned pages again.
    """

    def __init__(self, num_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
        self._advise("MADV_NOHUGEPAGE", 0, len(self._mapping))
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._mapping, np.uint8)[:num_bytes]

    def give_back(
        self, begin: int, end: int, *, widens: tuple[bool, bool] = (False, False)
    ) -> None:
        """Returns the system pages that are entirely within the bytes [begin, end).

        The pages at both ends may also hold bytes outside that range. The first flag of `widens`
        returns the page at the beginning, too, the second one the page at the end.
        """
        size = mmap.PAGESIZE
        begin = (begin if widens[0] else begin + size - 1) // size * size
        end = min((end + size - 1 if widens[1] else end) // size * size, len(self._mapping))
        if end > begin:
            self._advise("MADV_DONTNEED", begin, end - begin)

    def _advise(self, name: str, begin: int, length: int) -> None:
        advice = getattr(mmap, name, None)
        if advice is not None:
            self._mapping.madvise(advice, begin, length)


_MAPS = Path("/proc/self/maps")


class Mapping(Struct, frozen=True):
    """One mapping of the process's memory: addresses from `begin` to before `end`."""

    begin: int
    end: int
    is_writable: bool

    def has(self, begin: int, end: int) -> bool:
        """Returns True if the addresses from `begin` to before `end` are within the mapping."""
        return self.begin <= begin and end <= self.end


def mappings() -> tuple[Mapping, ...]:
    """Returns all mappings of the process, in order of addresses; empty if /proc has none."""
    try:
        text = _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(_parsed(text))


def _parsed(text: str) -> Iterator[Mapping]:
    for line in text.splitlines():
        addresses, permissions = line.split(maxsplit=2)[:2]
        begin, _, end = addresses.partition("-")
        yield Mapping(int(begin, 16), int(end, 16), "w" in permissions)


def mapping_of(found: tuple[Mapping, ...], begin: int, end: int) -> Mapping:
    """Returns the mapping with these addresses, or else a writable one of exactly these."""
    return next((each for each in found if each.has(begin, end)), Mapping(begin, end, True))


def drop_pages(data: npt.NDArray[np.uint8], path: Path, offset: int) -> None:
    """Drops the pages that are entirely within `data`, a mapping of a file from `offset` on.

    The contents stay valid: a dropped page is read again when it is used. Keeps pages that other
    programs use. Does nothing if the system does not support it.
    """
    begin = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    num_bytes = data.ctypes.data + data.nbytes - begin
    if num_bytes < mmap.PAGESIZE or not hasattr(os, "posix_fadvise"):
        return
    size = ctypes.c_size_t(num_bytes // mmap.PAGESIZE * mmap.PAGESIZE)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, mmap.MADV_DONTNEED)
    try:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), offset, data.nbytes, os.POSIX_FADV_DONTNEED)
    except OSError:
        return
