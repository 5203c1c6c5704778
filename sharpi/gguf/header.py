"""Parses the header of one GGUF file: everything before the tensors' bytes.

Layout (GGUF specification, versions 2 and 3, little-endian): magic, version, tensor count, metadata
count; key-value pairs; tensor infos; then, aligned, the tensors' bytes.
"""

from pathlib import Path

from msgspec import Struct

from sharpi.gguf.cursor import Cursor
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.metadata_values import LEAST_KEY_BYTES, MAX_KEYS, read_pairs
from sharpi.gguf.tensor_infos import (
    LEAST_TENSOR_BYTES,
    MAX_TENSORS,
    TensorInfo,
    read_tensor_infos,
)

_MAGIC = b"GGUF"
_BIG_ENDIAN = "this is a big-endian GGUF file, which is not supported"
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_CONVERT = "convert it to GGUF first"
_DOWNLOAD = "the download went wrong"
_KINDS = (
    (b"version https://git-lfs", "a git-lfs pointer; fetch the file itself with `git lfs pull`"),
    (b"<!doctype", f"a web page; {_DOWNLOAD}"),
    (b"<html", f"a web page; {_DOWNLOAD}"),
    (b"<?xml", f"a server's XML response; {_DOWNLOAD}"),
    (b"pk\x03\x04", f"a zip archive; unpack it, or if it is a PyTorch checkpoint, {_CONVERT}"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"lmgg", f"an old GGML file; {_CONVERT}"),
    (b"tjgg", f"an old GGML file; {_CONVERT}"),
    (b"fmgg", f"an old GGML file; {_CONVERT}"),
    (b"{", "JSON; give the path of the .gguf file"),
)


class Header(Struct, frozen=True):
    """The version, the metadata and the tensor infos of a file."""

    version: int
    metadata: Metadata
    tensors: tuple[TensorInfo, ...]


def parse_header(path: Path, head: memoryview, file_bytes: int) -> Header:
    """Parses the header in `head`, the first bytes of a file of `file_bytes` bytes.

    Raises ModelFileError, which names the file and what is wrong.
    """
    cursor = Cursor(path, head, file_bytes)
    _check_magic(cursor)
    version = _version(cursor)
    num_tensors = cursor.count("tensors", LEAST_TENSOR_BYTES, MAX_TENSORS)
    num_keys = cursor.count("metadata keys", LEAST_KEY_BYTES, MAX_KEYS)
    metadata = Metadata(path, read_pairs(cursor, num_keys))
    tensors = read_tensor_infos(cursor, num_tensors, _alignment(cursor, metadata))
    return Header(version, metadata, tensors)


def _check_magic(cursor: Cursor) -> None:
    start = bytes(cursor.head[:64])
    if start[:4] == _MAGIC[::-1]:
        raise cursor.error(_BIG_ENDIAN)
    if start[:4] != _MAGIC:
        raise cursor.error(describe_mistake(start))
    cursor.at = len(_MAGIC)


def _version(cursor: Cursor) -> int:
    version = cursor.uint32("the version")
    if version in (2, 3):
        return version
    if version == 1:
        raise cursor.error("GGUF version 1 is not supported; convert the model again")
    if int.from_bytes(version.to_bytes(4, "big"), "little") in (1, 2, 3):
        raise cursor.error(_BIG_ENDIAN)
    raise cursor.error(f"GGUF version {version} is not supported; sharpi reads 2 and 3")


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    alignment = metadata.get_int("general.alignment", _DEFAULT_ALIGNMENT)
    if not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.error(
            f"corrupt: general.alignment is {alignment}, not a power of two up to {_MAX_ALIGNMENT}"
        )
    return alignment


def describe_mistake(start: bytes) -> str:
    """Returns the error message for a file that begins with `start` instead of `GGUF`."""
    lowered = start.lstrip().lower() if start[:1].isspace() else start.lower()
    for magic, kind in _KINDS:
        if lowered.startswith(magic):
            return f"not a GGUF file but {kind}"
    if start[8:9] == b"{":  # safetensors: the length of its header comes first
        return f"not a GGUF file but safetensors; {_CONVERT}"
    if not any(start):
        return "not a GGUF file: it begins with zeros, like an unfinished download"
    return "not a GGUF file: it does not begin with GGUF"
