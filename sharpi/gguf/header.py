"""Parses the head of one GGUF file: every count, length and offset is checked before it is used.

Layout (GGUF specification, versions 2 and 3, little-endian): magic, version, tensor count, metadata
count; key-value pairs; tensor infos; then, aligned, the tensors' bytes.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata, StringArray, Value
from sharpi.gguf.quant_types import QuantType, row_bytes

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in (
        (0, "u1"), (1, "i1"), (2, "<u2"), (3, "<i2"), (4, "<u4"), (5, "<i4"), (6, "<f4"), (7, "?"),
        (10, "<u8"), (11, "<i8"), (12, "<f8"),
    )
}  # fmt: skip
_MAX_DIMENSIONS = 4
_MAX_NESTING = 4
_MAX_NAME_BYTES = 65535
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_MISTAKEN = (
    (b"PK\x03\x04", "a zip archive"),
    (b"version https://git-lfs", "a git-lfs pointer; fetch the file itself with `git lfs pull`"),
    (b"<!DOCTYPE", "a web page; the download went wrong"),
    (b"<html", "a web page; the download went wrong"),
    (b"ggml", "an old GGML file; convert it to GGUF"),
    (b"ggjt", "an old GGML file; convert it to GGUF"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor's place: `shape` slowest axis first, `offset` from the start of the file."""

    name: str
    quant_type: QuantType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the tensors' bytes."""

    version: int
    metadata: Metadata
    tensors: tuple[TensorInfo, ...]


def parse_header(path: Path, buffer: memoryview) -> Header:
    """The header of a whole mapped file; raises ModelFileError naming the file and the fault."""
    return _Parser(path, buffer).parse()


class _Parser:
    """A cursor over the file that never steps outside it."""

    def __init__(self, path: Path, buffer: memoryview) -> None:
        self._path, self._buffer, self._at = path, buffer, 0

    def parse(self) -> Header:
        version = self._version()
        num_tensors, num_keys = self._number("<Q"), self._number("<Q")
        self._plausible(num_tensors, _MIN_TENSOR_BYTES, "tensors")
        self._plausible(num_keys, _MIN_KEY_BYTES, "metadata keys")
        values: dict[str, Value] = {}
        for _ in range(num_keys):
            key = self._name("a metadata key")
            if key in values:
                raise self._fault(f"the metadata key {key} stands there twice")
            values[key] = self._value(self._number("<I"), key)
        metadata = Metadata(self._path, values)
        infos = [self._tensor_info() for _ in range(num_tensors)]
        return Header(version, metadata, self._placed(infos, self._alignment(metadata)))

    def _version(self) -> int:
        head = bytes(self._buffer[:24])
        if head[:4] != MAGIC:
            raise self._not_gguf(head)
        self._at = 4
        version = self._number("<I")
        if version & 0xFFFF == 0 and version >> 16:
            raise self._fault("this is a big-endian GGUF file, which is not supported")
        if version not in (2, 3):
            raise self._fault(f"GGUF version {version} is not supported; versions 2 and 3 are")
        return version

    def _not_gguf(self, head: bytes) -> ModelFileError:
        if not head:
            return self._fault("the file is empty")
        if head[:4] == MAGIC[::-1]:
            return self._fault("this is a big-endian GGUF file, which is not supported")
        for magic, kind in _MISTAKEN:
            if head.lower().startswith(magic.lower()):
                return self._fault(f"not a GGUF file but {kind}")
        if len(head) > 9 and head[8:9] == b"{":
            return self._fault("not a GGUF file but safetensors; convert it to GGUF first")
        return self._fault("not a GGUF file (it does not start with GGUF)")

    def _fault(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self._path}: {what}")

    def _plausible(self, count: int, least_bytes: int, what: str) -> None:
        if count > (len(self._buffer) - self._at) // least_bytes:
            raise self._fault(f"claims {count} {what}, more than the file can hold")

    def _take(self, count: int, what: str) -> memoryview:
        end = self._at + count
        if end > len(self._buffer):
            raise self._fault(f"truncated: {what} needs {count} bytes at {self._at}, past the end")
        part = self._buffer[self._at : end]
        self._at = end
        return part

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form), "a number"))[0])

    def _name(self, what: str) -> str:
        length = self._number("<Q")
        if not 0 < length <= _MAX_NAME_BYTES:
            raise self._fault(f"{what} has {length} bytes, outside 1..{_MAX_NAME_BYTES}")
        try:
            return str(self._take(length, what), "utf-8")
        except UnicodeDecodeError:
            raise self._fault(f"{what} at byte {self._at - length} is not UTF-8") from None

    def _value(self, code: int, key: str, depth: int = 0) -> Value:
        if code in _SCALARS:
            dtype = _SCALARS[code]
            part = self._take(dtype.itemsize, key)
            if code == 7 and part[0] > 1:
                raise self._fault(f"{key} is a boolean of value {part[0]}")
            return np.frombuffer(part, dtype)[0].item()
        if code == _STRING:
            return str(self._take(self._number("<Q"), key), "utf-8", "surrogateescape")
        if code == _ARRAY and depth < _MAX_NESTING:
            return self._array(key, depth)
        raise self._fault(f"{key} has the unknown value type {code}")

    def _array(self, key: str, depth: int) -> Value:
        code, count = self._number("<I"), self._number("<Q")
        if code in _SCALARS:
            dtype = _SCALARS[code]
            return np.frombuffer(self._take(count * dtype.itemsize, key), dtype)
        self._plausible(count, 8, f"entries of {key}")
        if code == _STRING:
            return self._strings(key, count)
        return [self._value(code, key, depth + 1) for _ in range(count)]

    def _strings(self, key: str, count: int) -> StringArray:
        """Walks the lengths only; texts are decoded when somebody asks."""
        at, end, offsets = self._at, len(self._buffer), []
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > end:
                raise self._fault(f"truncated within {key}")
            offsets.append(at)
            at += 8 + unpack(self._buffer, at)[0]
        if at > end:
            raise self._fault(f"truncated: a text of {key} reaches past the end")
        offsets.append(at)
        self._at = at
        return StringArray(self._buffer, offsets)

    def _alignment(self, metadata: Metadata) -> int:
        alignment = metadata.get_int("general.alignment", 32)
        if not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise self._fault(f"general.alignment is {alignment}, not a power of two up to 2^20")
        return alignment

    def _tensor_info(self) -> TensorInfo:
        name = self._name("a tensor's name")
        num_dimensions = self._number("<I")
        if not 0 < num_dimensions <= _MAX_DIMENSIONS:
            raise self._fault(f"tensor {name} has {num_dimensions} dimensions, 1 to 4 are possible")
        sizes = [self._number("<Q") for _ in range(num_dimensions)]
        code, offset = self._number("<I"), self._number("<Q")
        if code not in QuantType.__members__.values():
            raise self._fault(f"tensor {name} has the unknown type {code}")
        if min(sizes) < 1 or prod(sizes) >= 1 << 62:
            raise self._fault(f"tensor {name} has the impossible shape {sizes}")
        try:
            num_bytes = row_bytes(QuantType(code), sizes[0]) * prod(sizes[1:])
        except ValueError as error:
            raise self._fault(f"tensor {name}: {error}") from None
        return TensorInfo(name, QuantType(code), tuple(reversed(sizes)), offset, num_bytes)

    def _placed(self, infos: list[TensorInfo], alignment: int) -> tuple[TensorInfo, ...]:
        """Offsets from the start of the file; inside it, aligned, apart from each other."""
        start = (self._at + alignment - 1) // alignment * alignment
        placed: dict[str, TensorInfo] = {}
        for info in infos:
            at = start + info.offset
            if info.name in placed:
                raise self._fault(f"tensor {info.name} stands there twice")
            if info.offset % alignment:
                raise self._fault(f"tensor {info.name} is not aligned to {alignment} bytes")
            if at + info.num_bytes > len(self._buffer):
                raise self._fault(
                    f"truncated: tensor {info.name} ends at byte {at + info.num_bytes},"
                    f" the file at {len(self._buffer)}"
                )
            placed[info.name] = TensorInfo(
                info.name, info.quant_type, info.shape, at, info.num_bytes
            )
        self._check_overlap(sorted(placed.values(), key=lambda t: t.offset))
        return tuple(placed.values())

    def _check_overlap(self, ordered: list[TensorInfo]) -> None:
        for before, after in pairwise(ordered):
            if before.offset + before.num_bytes > after.offset:
                raise self._fault(f"tensors {before.name} and {after.name} overlap")
