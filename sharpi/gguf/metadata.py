"""Reads a file's metadata, and gives typed access; errors name the missing or malformed key."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sharpi.errors import ModelFileError
from sharpi.gguf.cursor import Cursor, file_error, printable
from sharpi.gguf.string_array import MAX_STRINGS, StringArray, read_string_array

MetadataValue = int | float | bool | str | np.ndarray | StringArray | list[Any]


class Metadata(Mapping[str, MetadataValue]):
    """The metadata of the file at `path`: keys and values in the file's order.

    The `get_*` methods return `default` for a missing key. They raise ModelFileError, which names
    the file and the key, if there is no default, or if the value has a wrong type or range.
    """

    def __init__(self, path: Path, values: dict[str, MetadataValue]) -> None:
        self.path = path
        self._values = values

    def __getitem__(self, key: str) -> MetadataValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get_int(
        self,
        key: str,
        default: int | None = None,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> int:
        """Returns an integer; a stored value must be from `minimum` to `maximum`, inclusive."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number", value)
        if key not in self._values:
            return value
        if minimum is not None and value < minimum:
            raise self._wrong(key, f"at least {minimum}", value)
        if maximum is not None and value > maximum:
            raise self._wrong(key, f"at most {maximum}", value)
        return value

    def get_float(self, key: str, default: float | None = None) -> float:
        """Returns a finite number."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise self._wrong(key, "a finite number", value)
        return float(value)

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """Returns a boolean."""
        value = self._find(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def get_str(self, key: str, default: str | None = None) -> str:
        """Returns a string."""
        value = self._find(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def find_printable(self, key: str) -> str | None:
        """Returns a string that is safe to print on a terminal; None if the key is missing."""
        return printable(self.get_str(key)) if key in self._values else None

    def get_string_array(self, key: str) -> StringArray:
        """Returns an array of strings, each of which is decoded on access."""
        value = self._find(key, None)
        if not isinstance(value, StringArray):
            raise self._wrong(key, "an array of strings", value)
        return value

    def get_array(self, key: str, default: np.ndarray | None = None) -> np.ndarray:
        """Returns a read-only view of an array of numbers, in the type that the file stores."""
        value = self._find(key, default)
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, "an array of numbers", value)
        return value

    def get_ints(self, key: str) -> list[int]:
        """Returns the integers of a non-empty array; a single integer becomes a list of one."""
        value = self._find(key, None)
        if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer) and value.size:
            return [int(v) for v in value]
        return [self.get_int(key)]

    def _find(self, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise file_error(self.path, f"the metadata has no {key}")
        return value

    def _wrong(self, key: str, wanted: str, value: Any) -> ModelFileError:
        return file_error(self.path, f"{key} must be {wanted}, not {_describe(value)}")


def _describe(value: Any) -> str:
    """Returns a short description of a value, whatever its size, for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} numbers"
    if isinstance(value, StringArray | list):
        return f"an array of {len(value)} entries"
    if isinstance(value, str):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    return repr(value)


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
    """Reads `count` keys and values in order; raises ModelFileError for a bad or repeated one."""
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
