"""Page-locks host memory in place, so that the GPU reads a mapped file without a second copy.

It depends on driver, kernel and GPU if that is possible; sharpi tries, and copies where it is not.
The memory is registered as read-only, because the driver refuses read-only mapped files otherwise.
"""

import mmap
from typing import Any

from sharpi.device.device import HostArray
from sharpi.device.launch import Memory

_MAPPED, _READ_ONLY = 2, 8  # cudaHostRegister's flags, for which CuPy has no names


class _Pages:
    """Page-locks a range as long as the object lives; `array` owns the bytes."""

    def __init__(self, runtime: Any, array: HostArray, begin: int, end: int) -> None:
        runtime.hostRegister(begin, end - begin, _MAPPED | _READ_ONLY)
        self._runtime, self._array = runtime, array
        self.begin, self.end = begin, end

    @property
    def is_at_its_own_address(self) -> bool:
        """True if kernels find the pages at the host's address."""
        return bool(self._runtime.pointerGetAttributes(self.begin).devicePointer == self.begin)

    def __del__(self) -> None:
        if hasattr(self, "begin"):
            self._runtime.hostUnregister(self.begin)


class AdoptedMemory:
    """Bytes within registered pages; kernels use the host's address for them."""

    def __init__(self, pages: tuple[_Pages, ...], address: int, num_bytes: int) -> None:
        self._pages, self.address, self.num_bytes = pages, address, num_bytes


class PageLock:
    """Registers each page once, although adjacent tensors share pages."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._pages: list[_Pages] = []
        self._is_possible = True

    def adopt(self, array: HostArray) -> Memory | None:
        """Returns the array as memory that kernels can read; None where the driver refuses."""
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
        """Registers those pages around these bytes that are not registered yet."""
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
