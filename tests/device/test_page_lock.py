import mmap
from types import SimpleNamespace

import numpy as np
import pytest

from sharpi.device.page_lock import PageLock

PAGE = mmap.PAGESIZE


class Refused(Exception):
    """Stands in for CuPy's CUDARuntimeError."""


class Runtime:
    """Records which ranges are registered; refuses a page twice, as the driver does."""

    CUDARuntimeError = Refused

    def __init__(self, *, refuses: bool = False, shift: int = 0) -> None:
        self.refuses, self.shift = refuses, shift
        self.ranges: dict[int, int] = {}

    def hostRegister(self, begin: int, num_bytes: int, flags: int) -> None:
        assert flags == 2 | 8, "mapped and read-only"
        assert begin % PAGE == 0
        assert num_bytes % PAGE == 0
        taken = any(b < begin + num_bytes and begin < b + n for b, n in self.ranges.items())
        if self.refuses or taken:
            raise Refused
        self.ranges[begin] = num_bytes

    def hostUnregister(self, begin: int) -> None:
        del self.ranges[begin]

    def pointerGetAttributes(self, begin: int) -> SimpleNamespace:
        return SimpleNamespace(devicePointer=begin + self.shift)


@pytest.fixture
def pages() -> np.ndarray:
    """Eight whole pages."""
    memory = np.zeros(9 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + 8 * PAGE]


def test_whole_pages_around_the_bytes(pages: np.ndarray) -> None:
    runtime = Runtime()
    part = pages[PAGE + 10 : 3 * PAGE + 10]
    memory = PageLock(runtime).adopt(part)
    assert memory is not None
    assert (memory.address, memory.num_bytes) == (part.ctypes.data, part.nbytes)
    assert runtime.ranges == {pages.ctypes.data + PAGE: 3 * PAGE}


def test_neighbours_share_a_page(pages: np.ndarray) -> None:
    runtime = Runtime()
    lock = PageLock(runtime)
    cuts = [0, PAGE + 5, 2 * PAGE + 7, 6 * PAGE]
    order = [(0, 1), (2, 3), (1, 2), (0, 3)]
    memories = [lock.adopt(pages[cuts[a] : cuts[b]]) for a, b in order]
    assert all(memories)
    assert sum(runtime.ranges.values()) == 6 * PAGE


def test_pages_are_given_back_with_the_last_user(pages: np.ndarray) -> None:
    runtime = Runtime()
    lock = PageLock(runtime)
    memory = lock.adopt(pages)
    del lock
    assert runtime.ranges
    del memory
    assert not runtime.ranges


@pytest.mark.parametrize("runtime", [Runtime(refuses=True), Runtime(shift=PAGE)])
def test_none_where_it_cannot_be(runtime: Runtime, pages: np.ndarray) -> None:
    """The driver refuses the memory, or kernels see it at another address."""
    lock = PageLock(runtime)
    assert lock.adopt(pages) is None
    runtime.refuses = False
    assert lock.adopt(pages[:10]) is None, "one refusal is enough"
