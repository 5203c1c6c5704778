"""Page-locking through a stand-in for CuPy's runtime, which refuses what drivers refuse."""

import gc
import mmap
from itertools import pairwise
from pathlib import Path
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

    def __init__(
        self, *, refuses: bool = False, shift: int = 0, attributes: dict[int, int] | None = None
    ) -> None:
        self.refuses, self.shift = refuses, shift
        self.attributes = {99: 1, 113: 0} | (attributes or {})
        self.ranges: dict[int, int] = {}
        self.flags: list[int] = []

    def deviceGetAttribute(self, number: int, index: int) -> int:
        return self.attributes[number]

    def hostRegister(self, begin: int, num_bytes: int, flags: int) -> None:
        self.flags.append(flags)
        assert begin % PAGE == 0
        assert num_bytes % PAGE == 0
        taken = any(b < begin + num_bytes and begin < b + n for b, n in self.ranges.items())
        if self.refuses or taken:
            raise Refused
        self.ranges[begin] = num_bytes

    def hostUnregister(self, begin: int) -> None:
        if self.refuses:
            raise Refused
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
    memory = PageLock(runtime).register_array(part)
    assert memory is not None
    assert (memory.address, memory.num_bytes) == (part.ctypes.data, part.nbytes)
    assert runtime.ranges == {pages.ctypes.data + PAGE: 3 * PAGE}


def test_neighbours_are_one_range(pages: np.ndarray) -> None:
    """A copy out of one tensor touches no page that was registered with another."""
    runtime = Runtime()
    lock = PageLock(runtime)
    cuts = [0, PAGE + 5, 2 * PAGE + 7, 6 * PAGE]
    tensors = [pages[a:b] for a, b in pairwise(cuts)]
    held = lock.lock([tensors[2], tensors[0], tensors[1]])
    assert held
    assert runtime.ranges == {pages.ctypes.data: 6 * PAGE}
    memories = [lock.register_array(each) for each in (*tensors, pages[10 : 5 * PAGE])]
    assert all(memories)
    assert len(runtime.ranges) == 1
    del held, memories[1:]
    assert len(runtime.ranges) == 1, "one tensor is still read"
    del memories[:]
    assert not runtime.ranges, "another model's experts may be locked now"


def test_what_is_far_apart_is_not_locked_together() -> None:
    runtime = Runtime()
    memory = np.zeros(4 << 20, np.uint8)
    assert PageLock(runtime).lock([memory[:PAGE], memory[3 << 20 :]])
    assert len(runtime.ranges) in (0, 2), "given back with the lock"


def test_a_half_of_a_page_of_another_is_refused(pages: np.ndarray) -> None:
    runtime = Runtime()
    lock = PageLock(runtime)
    held = lock.lock([pages[: PAGE + 10]])
    assert held
    assert lock.register_array(pages[PAGE + 10 : 3 * PAGE]) is None


def test_pages_are_given_back_with_the_last_user(pages: np.ndarray) -> None:
    runtime = Runtime()
    lock = PageLock(runtime)
    memory = lock.register_array(pages)
    del lock
    assert runtime.ranges
    del memory
    assert not runtime.ranges


@pytest.mark.parametrize("runtime", [Runtime(refuses=True), Runtime(shift=PAGE)])
def test_none_where_it_cannot_be(runtime: Runtime, pages: np.ndarray) -> None:
    """The driver refuses the memory, or kernels see it at another address."""
    lock = PageLock(runtime)
    assert lock.register_array(pages) is None
    assert not lock.lock([pages])
    runtime.refuses = False
    assert not runtime.ranges


def test_a_refusal_of_one_locks_none(pages: np.ndarray, tmp_path: Path) -> None:
    runtime = Runtime()
    assert not PageLock(runtime).lock([pages, of_file(tmp_path)])
    assert not runtime.ranges


@pytest.mark.parametrize(("supported", "flags"), [(0, []), (1, [1 | 2 | 8])])
def test_a_read_only_mapping_needs_an_attribute(
    supported: int, flags: list[int], tmp_path: Path
) -> None:
    runtime = Runtime(attributes={113: supported})
    lock = PageLock(runtime)
    assert bool(lock.lock([of_file(tmp_path)])) == bool(supported)
    assert runtime.flags == flags


def test_anonymous_memory_needs_none(pages: np.ndarray) -> None:
    """It is locked with the flags mapped and portable, though the loader's view is read-only."""
    runtime = Runtime()
    pages.flags.writeable = False
    assert PageLock(runtime).lock([pages])
    assert runtime.flags == [1 | 2]


def test_a_gpu_that_page_locks_nothing(pages: np.ndarray) -> None:
    runtime = Runtime(attributes={99: 0})
    assert not PageLock(runtime).lock([pages])
    assert not runtime.flags


@pytest.mark.filterwarnings("error")
def test_a_driver_that_is_gone_at_the_end(pages: np.ndarray) -> None:
    runtime = Runtime()
    held = PageLock(runtime).lock([pages])
    assert runtime.ranges
    runtime.refuses = True
    del held
    gc.collect()


def of_file(folder: Path) -> np.ndarray:
    """A read-only mapping of a file."""
    path = folder / "weights"
    path.write_bytes(bytes(3 * PAGE))
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
