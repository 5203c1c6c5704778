"""Host memory in place of a GPU's."""

import numpy as np
import numpy.typing as npt

from sharpi.device.launch import Span

ALIGNMENT = 256
_CELL_BYTES = 12  # of shim/engine/cells.h
_WORD_BYTES = 4  # a word has a cell, and each of its bytes has one


class CpuMemory:
    """Bytes of 0xff: floats that were never set read as NaN, ids as -1."""

    def __init__(self, num_bytes: int) -> None:
        room = np.full(num_bytes + ALIGNMENT, 0xFF, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        self.array: npt.NDArray[np.uint8] = room[start : start + num_bytes]
        self._address = room.ctypes.data + start
        self._cells: npt.NDArray[np.uint8] | None = None

    @property
    def address(self) -> int:
        return self._address

    @property
    def num_bytes(self) -> int:
        return len(self.array)

    def cells(self) -> tuple[int, int, int]:
        """Returns the address of the memory, and those of the cells of its words and its bytes.

        The addresses never change.
        """
        words = self.num_bytes // _WORD_BYTES + 2  # the memory may begin and end within a word
        if self._cells is None:
            self._cells = np.zeros(words * (1 + _WORD_BYTES) * _CELL_BYTES, np.uint8)
        address = self._cells.ctypes.data
        return self.address, address, address + words * _CELL_BYTES


class RegisteredMemory(CpuMemory):
    """An existing array, which may be read-only."""

    def __init__(self, array: npt.NDArray[np.uint8]) -> None:
        self.array = array.reshape(-1).view(np.uint8)
        self._address = self.array.ctypes.data
        self._cells = None


def memory_of(span: Span) -> CpuMemory:
    """Returns the memory, which must be host memory."""
    assert isinstance(span.memory, CpuMemory), "memory of another device"
    return span.memory


def host_bytes(span: Span) -> npt.NDArray[np.uint8]:
    """The host's view of a span."""
    return memory_of(span).array[span.offset : span.offset + span.num_bytes]
