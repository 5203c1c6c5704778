"""Finds damaged tensors of a GGUF file: NaN, infinities, zero scales and values out of range.

The scales of a block tell of all its values, and reading them alone is far faster than to
dequantise the block. Only the block with the largest scale is dequantised, and tensors of types
without such scales.
"""

from collections.abc import Callable, Iterator

import gguf
import numpy as np
import numpy.typing as npt
from gguf import quants
from msgspec import Struct

from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.units import format_bytes

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating]

# The offsets of the 16-bit floats in a block that scale all its values.
_SCALE_OFFSETS = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
_FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
_WHOLE_NUMBERS = ("I8", "I16", "I32", "I64")
_CHUNK_BYTES = 8 << 20
_DEQUANTISED_BYTES = 1 << 20  # become 8 to 16 times as many
_LARGEST = 65504.0  # of 16-bit floats; weights are far smaller
_UNBOUNDED = ("rope_freqs", "rope_factors")  # a factor of 1e30 switches a frequency off
_HOLE_BYTES = 64 << 10  # zeros in a row that no quantiser leaves in a matrix
# Rows of unused tokens may be zero.
_TOKEN_TABLES = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")


class CheckedTensor(Struct, frozen=True):
    """The result for one tensor: what is wrong with it, or that its type cannot be checked."""

    name: str
    type_name: str
    faults: tuple[str, ...]
    is_known: bool = True


def check_tensors(
    file: GgufFile, on_progress: Callable[[str, float], None]
) -> Iterator[CheckedTensor]:
    """Yields each tensor's result; `on_progress` gets its name, and the fraction of bytes done."""
    total = max(1, sum(each.num_bytes for each in file.tensors.values()))
    done = 0
    for tensor in file.tensors.values():
        check = _Check(tensor)
        is_known = True
        try:
            for blocks in _chunks(tensor):
                check.add(blocks)
                on_progress(tensor.name, min(1, (done := done + blocks.nbytes) / total))
        except (NotImplementedError, ValueError):  # gguf does not know the type
            is_known = False
        yield CheckedTensor(tensor.name, tensor.quant_type.name, tuple(check.faults()), is_known)


def _chunks(tensor: Tensor) -> Iterator[Bytes]:
    """Yields the tensor's blocks, (blocks, bytes per block), unless all of its bytes are valid."""
    kind = tensor.quant_type
    if kind.name in _WHOLE_NUMBERS:
        return
    is_direct = kind.name in _SCALE_OFFSETS or kind.name in _FLOATS or kind.name == "MXFP4"
    blocks = tensor.data.reshape(-1, kind.block_bytes)
    step = max(1, (_CHUNK_BYTES if is_direct else _DEQUANTISED_BYTES) // kind.block_bytes)
    for start in range(0, len(blocks), step):
        yield blocks[start : start + step]


class _Check:
    """The faults found so far in one tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._num_nan = self._num_infinite = self._count = 0
        self._largest = 0.0
        self._zeros = self._longest_zeros = 0  # blocks in a row with zeros alone

    def add(self, blocks: Bytes) -> None:
        """Checks further blocks, (blocks, bytes per block)."""
        numbers = _numbers(blocks, self._tensor.quant_type)
        self._count += numbers.size
        finite = np.isfinite(numbers)
        if not finite.all():
            num_nan = int(np.isnan(numbers).sum())
            self._num_nan += num_nan
            self._num_infinite += int(numbers.size - finite.sum()) - num_nan
            numbers = np.where(finite, numbers, 1)
        self._largest = max(self._largest, _largest(blocks, numbers, self._tensor.quant_type))
        self._add_zeros((numbers == 0).all(axis=1))

    def _add_zeros(self, flags: npt.NDArray[np.bool_]) -> None:
        edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
        lengths = edges[1::2] - edges[::2]
        if len(edges) and not edges[0]:
            lengths[0] += self._zeros
        is_open = len(edges) and edges[-1] == len(flags)
        self._zeros = int(lengths[-1]) if is_open else 0
        self._longest_zeros = max(self._longest_zeros, int(lengths.max(initial=0)))

    def faults(self) -> Iterator[str]:
        """Yields what is wrong with the tensor."""
        has_scales = self._tensor.quant_type.name in (*_SCALE_OFFSETS, "MXFP4")
        what = "scales" if has_scales else "values"
        for count, name in ((self._num_nan, "NaN"), (self._num_infinite, "infinite")):
            if count:
                yield f"{count} of {self._count} {what} are {name}"
        if self._largest > _LARGEST and not self._tensor.name.startswith(_UNBOUNDED):
            yield f"values up to {self._largest:.1e}, out of the range of 16-bit floats"
        num_zeros = self._longest_zeros * self._tensor.quant_type.block_bytes
        if num_zeros and num_zeros >= _least_hole(self._tensor):
            yield f"zero {what} for {format_bytes(num_zeros)} in a row"


def _least_hole(tensor: Tensor) -> float:
    """Returns how many bytes of zeros in a row are a fault of this tensor."""
    if len(tensor.shape) < 2 or not tensor.name.endswith(".weight"):
        return float("inf")
    half = tensor.num_bytes / 2
    return half if tensor.name in _TOKEN_TABLES else min(_HOLE_BYTES, half)


def _numbers(blocks: Bytes, kind: QuantType) -> Floats:
    """Returns the scales of blocks, or else all their values: (blocks, scales or values)."""
    if kind.name in _FLOATS:
        return blocks.view(_FLOATS[kind.name])
    if kind.name == "MXFP4":  # the first byte is the exponent of the scale, 255 is NaN
        exponents = blocks[:, :1].astype(np.float64)
        scales = np.where(exponents > 0, np.exp2(exponents - 127), 0)
        return np.where(exponents == 255, np.nan, scales)
    offsets = _SCALE_OFFSETS.get(kind.name)
    if offsets is None:
        return _dequantised(blocks, kind)
    parts = [np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16) for at in offsets]
    return np.concatenate(parts, axis=1)


def _largest(blocks: Bytes, numbers: Floats, kind: QuantType) -> float:
    """Returns the largest absolute value in blocks with these finite scales or values."""
    sizes = np.abs(numbers)
    if kind.name not in _SCALE_OFFSETS:
        return float(sizes.max(initial=0))
    rows = np.unique(sizes.argmax(axis=0))
    values = np.abs(_dequantised(blocks[rows], kind))
    return float(values[np.isfinite(values)].max(initial=0))


def _dequantised(blocks: Bytes, kind: QuantType) -> Floats:
    """Returns the values of blocks, (blocks, values); raises NotImplementedError."""
    with np.errstate(all="ignore"):
        # As one row: gguf computes 16 rows at a time.
        row = quants.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType(int(kind)))
    values: Floats = row.reshape(len(blocks), -1)
    return values
