"""StringArray: the strings of a metadata array, decoded from the mapped file on demand."""

from collections.abc import Iterable, Iterator
from ctypes import CDLL, c_char_p, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sharpi.errors import ModelFileError
from sharpi.gguf.cursor import Cursor
from sharpi.native import declare, open_library

# The largest vocabularies have 262,144 tokens and some 500,000 merges.
MAX_STRINGS = 1 << 22
LENGTH_BYTES = 8
_TABLE = [c_void_p, c_void_p, c_void_p, c_uint64, c_uint64]


class Texts(Protocol):
    """A sequence of strings: a list, or a StringArray, which decodes them on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> str: ...

    def __iter__(self) -> Iterator[str]: ...


class StringArray:
    """The strings of a metadata array, decoded on demand.

    Vocabularies of real files hold invalid UTF-8 (tokens that end inside a character). These bytes
    become lone surrogates, not U+FFFD, so that different tokens stay different and can be encoded
    back. `starts`: the offsets in `head` of each string's length field, and the end of the last
    string.
    """

    def __init__(self, head: memoryview, starts: NDArray[np.uint64]) -> None:
        self.head = head
        self.starts = starts
        self._bounds = starts.data  # a buffer whose items are plain Python numbers

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> str:
        at = range(len(self))[index]
        start, end = self._bounds[at] + LENGTH_BYTES, self._bounds[at + 1]
        return str(self.head[start:end], "utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StringArray):
            return NotImplemented
        (starts, data), (other_starts, other_data) = self._layout(), other._layout()
        return np.array_equal(starts, other_starts) and np.array_equal(data, other_data)

    __hash__ = None  # type: ignore[assignment]

    def _layout(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Returns the strings' offsets from the first one, and their bytes with length fields."""
        first, end = self.starts[0], self.starts[-1]
        return self.starts - first, np.frombuffer(self.head[first:end], np.uint8)

    @property
    def address(self) -> int:
        """The memory address of `head`; the offsets in `starts` count from it."""
        return int(np.frombuffer(self.head or b"\0", np.uint8).ctypes.data)

    def has_empty(self) -> bool:
        """Returns whether any string of the array is empty."""
        return bool((np.diff(self.starts) == LENGTH_BYTES).any())

    def copy(self) -> "StringArray":
        """Returns a copy of the strings that is independent of the mapped file."""
        first = self.starts[0]
        return StringArray(
            memoryview(bytes(self.head[first : self.starts[-1]])), self.starts - first
        )

    def tolist(self) -> list[str]:
        """Returns a list of all strings, which is faster than decoding them one by one."""
        if not len(self):
            return []
        starts = self.starts.astype(np.int64) - int(self.starts[0])
        data = np.frombuffer(self.head[self.starts[0] : self.starts[-1]], np.uint8).copy()
        data[starts[:-1, None] + np.arange(LENGTH_BYTES)] = 0
        if np.count_nonzero(data == 0) != LENGTH_BYTES * len(self):
            return [self[i] for i in range(len(self))]  # some strings hold zero bytes
        text = data.tobytes().decode("utf-8", "surrogateescape")
        return text.split(LENGTH_BYTES * "\0")[1:]


def read_string_array(cursor: Cursor, key: str, count: int) -> StringArray:
    """Reads an array of `count` strings; raises ModelFileError if it ends outside the head."""
    starts = np.empty(count + 1, np.uint64)
    address = np.frombuffer(cursor.head, np.uint8).ctypes.data
    whole = string_functions().sharpi_string_starts(
        address, len(cursor.head), cursor.at, count, starts.ctypes.data
    )
    if whole < count:
        raise _overrun(cursor, key, int(starts[whole]))
    cursor.at = int(starts[count])
    return StringArray(cursor.head, starts)


def _overrun(cursor: Cursor, key: str, start: int) -> ModelFileError:
    """Returns the error for the string whose length field begins at byte `start`."""
    end = start + LENGTH_BYTES
    if end <= len(cursor.head):
        end += int.from_bytes(cursor.head[start:end], "little")
    return cursor.out_of_bounds(f"a string of {key}", end)


@cache
def string_functions() -> CDLL:
    """Returns the native library, with ctypes signatures of the functions for string arrays."""
    signatures = {
        "sharpi_string_starts": (c_uint64, [c_void_p, c_uint64, c_uint64, c_uint64, c_void_p]),
        "sharpi_string_table_fill": (None, [c_void_p, c_void_p, c_uint64, *_TABLE[2:]]),
        "sharpi_string_table_find": (c_int64, [*_TABLE, c_char_p, c_uint64]),
    }
    return declare(open_library(), signatures)


def pack_strings(texts: Iterable[str]) -> StringArray:
    """Returns a StringArray of the texts, in newly allocated memory with a file's layout."""
    data = [text.encode("utf-8", "surrogateescape") for text in texts]
    ends = np.cumsum([0, *(LENGTH_BYTES + len(each) for each in data)], dtype=np.uint64)
    head = b"".join(len(each).to_bytes(LENGTH_BYTES, "little") + each for each in data)
    return StringArray(memoryview(head), ends)
