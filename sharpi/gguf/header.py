"""Parses the header of one GGUF file: everything before the tensors' bytes.

Layout (GGUF specification, versions 2 and 3, little-endian): magic, version, tensor count, metadata
count; key-value pairs; tensor infos; then, aligned, the tensors' bytes.
"""

import re
from itertools import pairwise
from math import prod
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import ModelFileError
from sharpi.gguf.cursor import Cursor
from sharpi.gguf.metadata import LEAST_KEY_BYTES, MAX_KEYS, Metadata, read_pairs
from sharpi.gguf.quant_types import WITHDRAWN_TYPES, QuantType, row_bytes

MAX_TENSORS = 1 << 18
# Bytes of a length, one character, dimensions, type and offset.
LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
_MAX_DIMENSIONS = 4
_MAX_VALUES = 1 << 62
# Types of ik_llama.cpp alone. Those from 200 on are others with their rows interleaved.
_IK_TYPES = {
    **{133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN", 137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K"},
    **{140: "IQ5_K", 141: "IQ6_K", 144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS", 152: "IQ5_KS"},
    **{153: "IQ2_KT", 154: "IQ3_KT", 155: "IQ4_KT", 156: "IQ3_KS", 157: "IQ2_KL", 158: "IQ1_KT"},
}
_IK_REPACKED = range(200, 400)
_TYPES = {int(quant_type): quant_type for quant_type in QuantType}


class TensorInfo(Struct, frozen=True):
    """The type, shape and place of one tensor in the file."""

    name: str
    quant_type: QuantType
    shape: tuple[int, ...]  # slowest axis first
    offset: int  # bytes from the start of the file
    num_bytes: int

    @property
    def end(self) -> int:
        """The offset of the first byte after the tensor, from the start of the file."""
        return self.offset + self.num_bytes


def read_tensor_infos(cursor: Cursor, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    """Reads the infos of `count` tensors, and returns them with offsets from the file's start.

    The tensors' bytes begin at the next multiple of `alignment` after the infos. Raises
    ModelFileError for tensors that are misaligned, that overlap, or that are outside the file.
    """
    infos: dict[str, TensorInfo] = {}
    for _ in range(count):
        info = _read_info(cursor)
        if info.name in infos:
            raise cursor.error(f"corrupt: tensor {info.name} appears twice")
        if info.offset % alignment:
            raise cursor.error(f"corrupt: tensor {info.name} is not aligned to {alignment} bytes")
        infos[info.name] = info
    start = -(-cursor.at // alignment) * alignment
    placed = tuple(replace(info, offset=start + info.offset) for info in infos.values())
    _check_places(cursor, placed)
    return placed


def _read_info(cursor: Cursor) -> TensorInfo:
    name = cursor.name("a tensor's name")
    num_dimensions = cursor.uint32(f"tensor {name}")
    if num_dimensions > _MAX_DIMENSIONS:
        raise _fault(cursor, name, f"has {num_dimensions} dimensions, more than {_MAX_DIMENSIONS}")
    # In the file, the fastest axis comes first.
    sizes = cursor.uint64s(num_dimensions, f"tensor {name}")
    if min(sizes, default=1) < 1 or prod(sizes) > _MAX_VALUES:
        raise _fault(cursor, name, f"has the impossible shape {tuple(reversed(sizes))}")
    quant_type = _quant_type(cursor, name)
    offset = cursor.uint64(f"tensor {name}")
    columns, num_rows = (sizes or (1,))[0], prod(sizes[1:])
    try:
        num_bytes = row_bytes(quant_type, columns) * num_rows
    except ValueError as error:
        raise cursor.error(f"corrupt: tensor {name}: {error}") from None
    return TensorInfo(name, quant_type, tuple(reversed(sizes)), offset, num_bytes)


def _quant_type(cursor: Cursor, name: str) -> QuantType:
    code = cursor.uint32(f"tensor {name}")
    if code in WITHDRAWN_TYPES:
        withdrawn = WITHDRAWN_TYPES[code]
        raise cursor.error(
            f"tensor {name} is {withdrawn}, a withdrawn type; quantise the model again"
        )
    if code in _IK_TYPES or code in _IK_REPACKED:
        what = _IK_TYPES.get(code, "repacked")
        raise cursor.error(
            f"tensor {name} is {what}, a type of ik_llama.cpp alone (id {code});"
            " quantise the model to a type of llama.cpp"
        )
    if code not in _TYPES:
        raise _fault(cursor, name, f"has the unknown type {code}")
    return _TYPES[code]


def _fault(cursor: Cursor, name: str, what: str) -> ModelFileError:
    return cursor.error(f"corrupt: tensor {name} {what}")


def _check_places(cursor: Cursor, infos: tuple[TensorInfo, ...]) -> None:
    """Checks that all tensors lie inside the file, and that none overlaps another."""
    for info in infos:
        if info.end > cursor.file_bytes:
            raise cursor.out_of_bounds(f"tensor {info.name}", info.end)
    for before, after in pairwise(sorted(infos, key=lambda info: info.offset)):
        if before.end > after.offset:
            raise cursor.error(f"corrupt: tensors {before.name} and {after.name} overlap")


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


# Tensors of routed experts: one for all experts of a layer, or one per expert (old Mixtral).
_EXPERT_TENSOR = re.compile(r"_exps\.|\.ffn_(gate|up|down)\.\d+\.")
_LAYER = re.compile(r"blk\.(\d+)\.")


def layer_of(name: str) -> int | None:
    """Returns the index of the layer in a tensor's name; None for tensors outside the layers."""
    match = _LAYER.match(name)
    return int(match[1]) if match else None


def is_routed(name: str) -> bool:
    """Returns True if a tensor belongs to routed experts, of which a token uses only a few."""
    return _EXPERT_TENSOR.search(name) is not None


def is_expert_matrix(name: str) -> bool:
    """Returns whether a tensor is a matrix of routed experts, which may stay on disk."""
    return is_routed(name) and name.endswith(".weight")
