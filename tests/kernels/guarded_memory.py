"""Memory that ends where the process must not read: one byte too far ends the test run."""

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray


class GuardedMemory:
    """A private mapping whose last page is inaccessible; arrays are laid against that page."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._usable = -(-size // page) * page
        self._mapping = mmap.mmap(-1, self._usable + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        libc = ctypes.CDLL(None, use_errno=True)
        status = libc.mprotect(ctypes.c_void_p(start + self._usable), ctypes.c_size_t(page), 0)
        assert status == 0, f"mprotect failed with errno {ctypes.get_errno()}"

    def holding(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns a copy of the array whose last byte is the last that may be read."""
        flat = np.frombuffer(self._mapping, np.uint8, array.nbytes, self._usable - array.nbytes)
        flat[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return flat.view(array.dtype).reshape(array.shape)
