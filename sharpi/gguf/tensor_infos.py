"""TensorInfo: the place of each tensor in the file, with checks for bounds and overlaps."""

from itertools import pairwise
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import ModelFileError
from sharpi.gguf.cursor import Cursor
from sharpi.gguf.quant_types import WITHDRAWN_TYPES, QuantType, row_bytes

MAX_TENSORS = 1 << 18
# Bytes of a length, one character, dimensions, type and offset.
LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
_MAX_DIMENSIONS = 4
_MAX_VALUES = 1 << 62
# Types of ik_llama.cpp alone. Those from 200 on are others with their rows interleaved.
_IK_TYPES = {
    133: "Q6_0",
    134: "IQ1_BN",
    135: "IQ2_BN",
    137: "IQ2_K",
    138: "IQ3_K",
    139: "IQ4_K",
    140: "IQ5_K",
    141: "IQ6_K",
    144: "IQ4_KS",
    145: "IQ2_KS",
    146: "IQ4_KSS",
    152: "IQ5_KS",
    153: "IQ2_KT",
    154: "IQ3_KT",
    155: "IQ4_KT",
    156: "IQ3_KS",
    157: "IQ2_KL",
    158: "IQ1_KT",
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
