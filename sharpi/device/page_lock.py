"""Page-locks host memory in place, so that the GPU reads it without a second copy.

Anonymous memory can nearly always be page-locked. A read-only file mapping can be page-locked only
if the GPU has cudaDevAttrHostRegisterReadOnlySupported.
"""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakSet

from msgspec import Struct

from sharpi.device.device import HostArray
from sharpi.device.launch import Memory
from sharpi.system.memory import Mapping, mapping_of, mappings

# cudaHostRegister's flags and attribute numbers, which not every CuPy version names.
PORTABLE, MAPPED, READ_ONLY = 1, 2, 8
_REGISTER_SUPPORTED, _READ_ONLY_SUPPORTED = 99, 113
_MOST_BETWEEN = 1 << 20  # the most bytes between two arrays that are page-locked together


class _Range(Struct, frozen=True):
    """A range of system pages that contains some arrays; it keeps those arrays alive."""

    begin: int
    end: int
    is_writable: bool
    arrays: tuple[HostArray, ...]


class _Pages:
    """Page-locks a range for as long as the object exists."""

    def __init__(self, runtime: Any, locked: _Range) -> None:
        flags = PORTABLE | MAPPED | (0 if locked.is_writable else READ_ONLY)
        runtime.hostRegister(locked.begin, locked.end - locked.begin, flags)
        self._runtime, self._arrays = runtime, locked.arrays
        self.begin, self.end = locked.begin, locked.end

    @property
    def is_at_its_own_address(self) -> bool:
        """True if kernels find the pages at the host's address."""
        return bool(self._runtime.pointerGetAttributes(self.begin).devicePointer == self.begin)

    def __del__(self) -> None:
        if hasattr(self, "begin"):
            with suppress(Exception):  # the driver may already be gone when the process ends
                self._runtime.hostUnregister(self.begin)


class RegisteredMemory(NamedTuple):
    """Host memory within page-locked pages; its address is the same for kernels and host."""

    pages: _Pages
    address: int
    num_bytes: int


class PageLock:
    """Page-locks host arrays in place with cudaHostRegister.

    Arrays near each other are registered as one range, because no copy may cross a range's end.
    """

    def __init__(self, runtime: Any, index: int = 0) -> None:
        self._runtime, self._index = runtime, index
        self._pages: WeakSet[_Pages] = WeakSet()

    def lock(self, arrays: Sequence[HostArray]) -> object:
        """Page-locks all of these arrays for as long as the returned object or their memory lives.

        Returns None, and locks none, if any is refused.
        """
        pages = list[_Pages]()
        for each in _ranges(arrays):
            one = self._registered(each)
            if one is None:
                return None
            pages.append(one)
        self._pages.update(pages)
        return pages

    def register_array(self, array: HostArray) -> Memory | None:
        """Page-locks the array if it is not yet, and returns it as memory that kernels can read.

        Returns None if the array is empty or the driver refuses.
        """
        if not array.nbytes:
            return None
        start = int(array.ctypes.data)
        locked = self._around(start, start + array.nbytes) or self.lock([array])
        pages = self._around(start, start + array.nbytes) if locked else None
        return None if pages is None else RegisteredMemory(pages, start, array.nbytes)

    def _around(self, begin: int, end: int) -> _Pages | None:
        return next((p for p in self._pages if p.begin <= begin and end <= p.end), None)

    def _registered(self, requested: _Range) -> _Pages | None:
        """Page-locks a range, and returns it; None if the driver cannot do it, or refuses."""
        if not self._attribute(_REGISTER_SUPPORTED, unknown=True):
            return None
        if not requested.is_writable and not self._attribute(_READ_ONLY_SUPPORTED, unknown=False):
            return None
        try:
            pages = _Pages(self._runtime, requested)
            return pages if pages.is_at_its_own_address else None
        except self._runtime.CUDARuntimeError:
            return None

    def _attribute(self, number: int, *, unknown: bool) -> bool:
        try:
            return bool(self._runtime.deviceGetAttribute(number, self._index))
        except self._runtime.CUDARuntimeError:
            return unknown


def _ranges(arrays: Sequence[HostArray]) -> Iterator[_Range]:
    """Yields ranges of system pages that contain the arrays; near ones of a mapping share one."""
    known, last = mappings(), None
    for array in sorted(arrays, key=lambda each: int(each.ctypes.data)):
        if not array.nbytes:
            continue
        begin, end = _whole_pages(array)
        around = mapping_of(known, begin, end)
        if last is not None and _adjoin(last, begin, around):
            last = _Range(last.begin, max(end, last.end), last.is_writable, (*last.arrays, array))
            continue
        if last is not None:
            yield last
        last = _Range(begin, end, around.is_writable, (array,))
    if last is not None:
        yield last


def _adjoin(last: _Range, begin: int, around: Mapping) -> bool:
    return around.has(last.begin, last.end) and begin - last.end <= _MOST_BETWEEN


def _whole_pages(array: HostArray) -> tuple[int, int]:
    start, page = int(array.ctypes.data), mmap.PAGESIZE
    return start // page * page, -(-(start + array.nbytes) // page) * page
