"""Looks up tensors of the file by name, checks type and shape, and records which were used.

The data of quantised matrices are views into the mapped file, or into copies that are filled later.
One-dimensional tensors (norms, biases) are small and are converted to float32.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.ops.interface import FloatArray, Matrix, StackedMatrix

SUPPORTED_TYPES = frozenset(
    QuantType[name]
    for name in (
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
        "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0",
    )
)  # fmt: skip


class TensorSource(Struct, frozen=True):
    """The tensors of a file whose names begin with `prefix`."""

    file: GgufFile
    # Maps the usual name of a tensor to its name in this architecture's files, which there has
    # this meaning only.
    renames: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # for instance "blk.3."
    taken: set[str] = field(default_factory=set)

    def layer(self, index: int) -> "TensorSource":
        """Returns a source for the tensors of one layer, with the prefix `blk.<index>.`."""
        return replace(self, prefix=f"blk.{index}.")

    def has(self, name: str) -> bool:
        return self._full_name(name) in self.file.tensors

    def unused(self) -> tuple[str, ...]:
        """Returns the names of all tensors in the file that no call has returned so far."""
        return tuple(name for name in self.file.tensors if name not in self.taken)

    def vector(self, name: str, *sizes: int) -> FloatArray:
        """Returns a tensor of one row as float32; its length must be one of `sizes`."""
        tensor = self.tensor(name)
        is_row = all(size == 1 for size in tensor.shape[:-1])
        if not is_row or tensor.shape[-1] not in sizes:
            self._check(tensor, sizes[:1])
        return self._floats(tensor)

    def optional_vector(self, name: str, *sizes: int) -> FloatArray | None:
        """Returns a vector as `vector` does, or None if the file does not have it."""
        return self.vector(name, *sizes) if self.has(name) else None

    def array(self, name: str, shape: tuple[int, ...]) -> FloatArray:
        """Returns a small tensor as float32; it must have this shape, but for sizes of 1."""
        tensor = self.tensor(name)
        if [size for size in tensor.shape if size > 1] != [size for size in shape if size > 1]:
            self._check(tensor, shape)
        return self._floats(tensor).reshape(shape)

    def matrix(self, name: str, shape: tuple[int | None, int], *, is_scaled: bool = True) -> Matrix:
        """Returns `<name>.weight` (rows, columns), with `<name>.bias` and `.scale` if present."""
        tensor = self.tensor(f"{name}.weight")
        if shape[0] == 1 and len(tensor.shape) == 1:
            self._check(tensor, shape[1:])
        else:
            self._check(tensor, shape)
        rows = tensor.num_values // shape[1]
        bias = self.optional_vector(f"{name}.bias", rows)
        full_name = tensor.name.removesuffix(".weight")
        scales = self._scales(name, 1) if is_scaled else None
        scale = 1.0 if scales is None else float(scales[0])
        return Matrix(full_name, tensor.quant_type, rows, shape[1], tensor.data, bias, scale)

    def rows(self, name: str, heights: Sequence[int], columns: int) -> list[Matrix]:
        """Returns `<name>.weight` (sum of heights, columns) split into a matrix for each height."""
        whole = self.matrix(name, (sum(heights), columns))
        row_bytes, parts, first = whole.data.nbytes // whole.rows, [], 0
        data = whole.data.reshape(-1)
        for height in heights:
            end = first + height
            part = data[first * row_bytes : end * row_bytes]
            bias = None if whole.bias is None else whole.bias[first:end]
            parts.append(replace(whole, rows=height, data=part, bias=bias))
            first = end
        return parts

    def optional_matrix(self, name: str, shape: tuple[int | None, int]) -> Matrix | None:
        """Returns a matrix as `matrix` does, or None if the file does not have it."""
        return self.matrix(name, shape) if self.has(f"{name}.weight") else None

    def stacked(self, name: str, num_experts: int, shape: tuple[int | None, int]) -> StackedMatrix:
        """Returns `<name>.weight` (experts, rows, columns), with `.bias` and `.scale` if any."""
        tensor = self.tensor(f"{name}.weight")
        is_stacked = len(tensor.shape) == 3 or num_experts > 1
        self._check(tensor, (num_experts, *shape) if is_stacked else shape)
        rows, columns = tensor.shape[-2:]
        full_name = tensor.name.removesuffix(".weight")
        bias = None
        if self.has(f"{name}.bias"):
            bias = self.array(f"{name}.bias", (num_experts, rows) if is_stacked else (rows,))
            bias = bias.reshape(num_experts, rows)
        scales = self._scales(name, num_experts)
        return StackedMatrix(
            full_name, tensor.quant_type, num_experts, rows, columns, tensor.data, bias, scales
        )

    def _scales(self, name: str, count: int) -> FloatArray | None:
        """Returns the scale of each of `count` matrices, which NVFP4 needs; None without scales.

        Input scales, for processors that multiply in four bits, are ignored.
        """
        if self.has(f"{name}.input_scale"):
            self.taken.add(self._full_name(f"{name}.input_scale"))
        return self.optional_vector(f"{name}.scale", count)

    def tensor(self, name: str) -> Tensor:
        """Returns a tensor, now used; raises ModelFileError or UnsupportedModelError."""
        full_name = self._full_name(name)
        if full_name not in self.file.tensors:
            raise ModelFileError(f"{self.file.path}: tensor {full_name} is missing")
        self.taken.add(full_name)
        tensor = self.file.tensors[full_name]
        if tensor.quant_type not in SUPPORTED_TYPES:
            known = ", ".join(sorted(t.name for t in SUPPORTED_TYPES))
            raise UnsupportedModelError(
                f"{self.file.path}: tensor {full_name} is {tensor.quant_type.name}; "
                f"sharpi runs {known}"
            )
        return tensor

    def _full_name(self, name: str) -> str:
        part, dot, kind = name.rpartition(".")
        if part in self.renames:
            part = self.renames[part]
        elif part in self.renames.values():
            part = f"{part} under another meaning"
        return f"{self.prefix}{part}{dot}{kind}"

    def _check(self, tensor: Tensor, expected: Sequence[int | None]) -> None:
        fits = len(tensor.shape) == len(expected) and all(
            want is None or have == want for have, want in zip(tensor.shape, expected, strict=True)
        )
        if not fits:
            want = " x ".join("?" if n is None else str(n) for n in expected)
            have = " x ".join(map(str, tensor.shape))
            path = self.file.parts[tensor.part]
            raise ModelFileError(f"{path}: tensor {tensor.name} is {have}, not {want}")

    def _floats(self, tensor: Tensor) -> FloatArray:
        data = tensor.data_in_file
        if tensor.quant_type is QuantType.F32:
            floats = np.frombuffer(data, np.float32)
            return floats if data is tensor.data else floats.copy()
        if tensor.quant_type is QuantType.F16:
            return np.frombuffer(data, np.float16).astype(np.float32)
        if tensor.quant_type is QuantType.BF16:
            return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        raise UnsupportedModelError(
            f"{self.file.path}: tensor {tensor.name} is {tensor.quant_type.name}; "
            "vectors must be floats"
        )
