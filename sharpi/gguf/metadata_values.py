"""Parses the key-value pairs of a header; arrays of numbers are views into the mapped file."""

from typing import Any

import numpy as np

from sharpi.gguf.cursor import Cursor
from sharpi.gguf.metadata import MetadataValue
from sharpi.gguf.string_array import MAX_STRINGS, read_string_array

MAX_KEYS = 1 << 16
LEAST_KEY_BYTES = 8 + 1 + 4 + 1  # bytes of a length, one character, a type and a value
_BOOL, _STRING, _ARRAY = 7, 8, 9
_LEAST_BYTES = {_STRING: 8, _ARRAY: 12}
_MAX_DEPTH = 4
_MAX_NESTED_ARRAYS = 1 << 16  # no known program writes nested arrays; each costs a Python object
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    _BOOL: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


def read_pairs(cursor: Cursor, count: int) -> dict[str, MetadataValue]:
    """Reads `count` keys and values in the file's order.

    Raises ModelFileError for a repeated key or a malformed value.
    """
    values = _Values(cursor)
    pairs: dict[str, MetadataValue] = {}
    for _ in range(count):
        key = cursor.name("a metadata key")
        if key in pairs:
            raise cursor.error(f"corrupt: the metadata key {key} appears twice")
        pairs[key] = values.read(cursor.uint32(f"the type of {key}"), key)
    return pairs


class _Values:
    """Reads values by their type code, and limits the number of nested arrays in a header."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._num_nested = 0

    def read(self, code: int, key: str, depth: int = 0) -> MetadataValue:
        if code in _SCALARS:
            number: int | float | bool = self._numbers(code, key, 1).item()
            return number
        if code == _STRING:
            return self._cursor.text(key)
        if code == _ARRAY:
            return self._array(key, depth)
        raise self._cursor.error(f"corrupt: {key} has the unknown value type {code}")

    def _numbers(self, code: int, key: str, count: int) -> np.ndarray:
        dtype = _SCALARS[code]
        data = self._cursor.take(count * dtype.itemsize, key)
        if code == _BOOL and np.frombuffer(data, np.uint8).max(initial=0) > 1:
            raise self._cursor.error(f"corrupt: {key} holds a boolean that is neither 0 nor 1")
        return np.frombuffer(data, dtype)

    def _array(self, key: str, depth: int) -> MetadataValue:
        code = self._cursor.uint32(f"the type of {key}")
        if code not in _SCALARS and code not in _LEAST_BYTES:
            raise self._cursor.error(f"corrupt: {key} has the unknown value type {code}")
        if code in _SCALARS:
            count = self._cursor.uint64(f"the length of {key}")
            return self._numbers(code, key, count)
        limit = MAX_STRINGS if code == _STRING else _MAX_NESTED_ARRAYS
        count = self._cursor.count(f"entries of {key}", _LEAST_BYTES[code], limit)
        if code == _STRING:
            return read_string_array(self._cursor, key, count)
        return self._nested(key, count, depth + 1)

    def _nested(self, key: str, count: int, depth: int) -> list[MetadataValue]:
        self._num_nested += count
        if depth >= _MAX_DEPTH or self._num_nested > _MAX_NESTED_ARRAYS:
            raise self._cursor.error(f"corrupt: {key} nests too many arrays")
        return [self._array(key, depth) for _ in range(count)]
