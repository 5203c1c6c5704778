"""Typed access to a file's metadata: a missing or misshapen key is an error that names it."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sharpi.errors import ModelFileError


class StringArray:
    """An array of strings that stays bytes in the file until somebody asks.

    Vocabularies may hold invalid UTF-8; such bytes become surrogates and survive a round trip.
    """

    def __init__(self, buffer: memoryview, offsets: list[int]) -> None:
        self._buffer = buffer
        self._offsets = offsets  # of each length field, and the end

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def tolist(self) -> list[str]:
        """All strings, decoded."""
        data, offsets = self._buffer, self._offsets
        return [
            str(data[start + 8 : end], "utf-8", "surrogateescape")
            for start, end in pairwise(offsets)
        ]


Value = int | float | bool | str | np.ndarray | StringArray | list[Any]


class Metadata(Mapping[str, Value]):
    """Keys and values in the file's order; accessors raise ModelFileError naming file and key."""

    def __init__(self, path: Path, values: dict[str, Value]) -> None:
        self._path = path
        self._values = values

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get_int(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number", value)
        return value

    def get_float(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise self._wrong(key, "a finite number", value)
        return float(value)

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._find(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def get_str(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._find(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text", value)
        return value

    def get_strings(self, key: str, default: list[str] | None = None) -> list[str]:
        """An array of texts."""
        value = self._find(key, default)
        if isinstance(value, StringArray):
            return value.tolist()
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return value
        raise self._wrong(key, "an array of texts", value)

    def get_array(self, key: str, default: np.ndarray | None = None) -> np.ndarray:
        """An array of numbers."""
        value = self._find(key, default)
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, "an array of numbers", value)
        return value

    def get_ints(self, key: str) -> list[int]:
        """Whole numbers: one, or an array of them."""
        value = self._find(key, None)
        if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer) and value.size:
            return [int(v) for v in value]
        return [self.get_int(key)]

    def _find(self, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise ModelFileError(f"{self._path}: the metadata has no {key}")
        return value

    def _wrong(self, key: str, wanted: str, value: Any) -> ModelFileError:
        shown = type(value).__name__ if len(repr(value)) > 40 else repr(value)
        return ModelFileError(f"{self._path}: {key} must be {wanted}, not {shown}")
