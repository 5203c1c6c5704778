"""StringArray and TextIndex: the strings of a metadata array, and their indices by text.

Strings are decoded from the mapped file on demand. Filling a Python dictionary of 150,000 tokens
takes 50 ms; the native table of a TextIndex takes 3 ms.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from ctypes import CDLL, c_char_p, c_int64, c_uint64, c_void_p
from functools import cache, cached_property
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


class TextIndex(Mapping[str, int]):
    """Maps each text in an array of strings to its index, of equal texts the first one's."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts if isinstance(texts, StringArray) else pack_strings(texts)
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._find = string_functions().sharpi_string_table_find

    def __getitem__(self, text: str) -> int:
        number = self.find(text)
        if number < 0:
            raise KeyError(text)
        return number

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.find(text) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.todict())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._slots))

    def find(self, text: str) -> int:
        """Returns the number of a text; -1 if the array does not have it."""
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate, which no array has
            return -1
        return int(self._find(*self._table, data, len(data)))

    def find_all(self, texts: Iterable[str]) -> dict[str, int]:
        """Returns a dictionary from those of `texts` that the array has to their numbers."""
        numbers = ((text, self.find(text)) for text in texts)
        return {text: number for text, number in numbers if number >= 0}

    def todict(self) -> dict[str, int]:
        """Returns a dictionary from all texts of the array to their numbers."""
        texts = self.texts.tolist()
        return dict(zip(reversed(texts), reversed(range(len(texts))), strict=True))

    @cached_property
    def longest(self) -> int:
        """The length of the longest text in bytes."""
        return int(np.diff(self.texts.starts).max(initial=LENGTH_BYTES)) - LENGTH_BYTES

    @cached_property
    def _table(self) -> tuple[int, int, int, int, int]:
        """The arguments of the native table: addresses of texts, starts and slots, slots, seed."""
        texts, slots = self.texts, self._slots
        return texts.address, texts.starts.ctypes.data, slots.ctypes.data, len(slots), self._seed

    @cached_property
    def _slots(self) -> np.ndarray:
        texts = self.texts
        slots = np.zeros(1 << (2 * len(texts) + 1).bit_length(), np.uint32)
        table = slots.ctypes.data, len(slots), self._seed
        string_functions().sharpi_string_table_fill(
            texts.address, texts.starts.ctypes.data, len(texts), *table
        )
        return slots
