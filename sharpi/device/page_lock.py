"""Memory of the host that is page-locked where it lies: a mapped file, without a second copy.

Whether that is possible depends on driver, kernel and GPU; sharpi tries, and copies where it is
not. Registering is read-only: a file that is mapped so refuses anything else.
"""

import mmap
from typing import Any

from sharpi.device.device import HostArray
from sharpi.device.launch import Memory

_MAPPED, _READ_ONLY = 2, 8  # cudaHostRegister's flags, for which CuPy has no names


class _Pages:
    """Page-locked for as long as the object lives; `array` is what owns the bytes."""

    def __init__(self, runtime: Any, array: HostArray, begin: int, end: int) -> None:
        runtime.hostRegister(begin, end - begin, _MAPPED | _READ_ONLY)
        self._runtime, self._array = runtime, array
        self.begin, self.end = begin, end

    @property
    def is_at_its_own_address(self) -> bool:
        """Whether kernels find it where the host does."""
        return bool(self._runtime.pointerGetAttributes(self.begin).devicePointer == self.begin)

    def __del__(self) -> None:
        if hasattr(self, "begin"):
            self._runtime.hostUnregister(self.begin)


class AdoptedMemory:
    """Bytes within registered pages, at the address that the host has for them."""

    def __init__(self, pages: tuple[_Pages, ...], address: int, num_bytes: int) -> None:
        self._pages, self.address, self.num_bytes = pages, address, num_bytes


class PageLock:
    """Every page is registered once, although adjacent tensors share some."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._pages: list[_Pages] = []
        self._is_possible = True

    def adopt(self, array: HostArray) -> Memory | None:
        """The array as memory that kernels can read; None where the driver refuses."""
        if not self._is_possible or not array.nbytes:
            return None
        start = int(array.ctypes.data)
        try:
            self._register(array, start, start + array.nbytes)
        except self._runtime.CUDARuntimeError:
            self._is_possible = False
        if not self._is_possible:
            return None
        return AdoptedMemory(tuple(self._pages), start, array.nbytes)

    def _register(self, array: HostArray, start: int, end: int) -> None:
        """Registers what of the pages around these bytes is not registered yet."""
        at = start // mmap.PAGESIZE * mmap.PAGESIZE
        last = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        for pages in sorted(self._pages, key=lambda each: each.begin):
            if pages.end <= at or pages.begin >= last:
                continue
            self._add(array, at, pages.begin)
            at = pages.end
        self._add(array, at, last)

    def _add(self, array: HostArray, begin: int, end: int) -> None:
        if begin < end:
            pages = _Pages(self._runtime, array, begin, end)
            self._is_possible &= pages.is_at_its_own_address
            self._pages.append(pages)
