"""Records matmuls: of quant blocks for few tokens, of weights dequantised to f16 for many."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.gpu_limits import check_type
from sharpi.ops.cuda.launchers.matvec import (
    MAX_PARTS,
    MatvecPart,
    matvec,
    matvec_mixed,
    matvec_tiled,
)
from sharpi.ops.cuda.matvec_layout import FLOAT_TYPES, MAX_TOKENS, reads_floats
from sharpi.ops.cuda.recorded import Call, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.f16_matmul import (
    F16Matmul,
    OnGpu,
    f16_matmul,
    supports_f16_matmul,
    uses_library,
)
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.interface import Matrix, StackedMatrix


class Part(Struct, frozen=True):
    """One matrix of a product, and its result."""

    matrix: Matrix
    out: RecordedTensor


def linear(
    recording: Recording,
    x: RecordedTensor,
    parts: Sequence[Part],
    residual: RecordedTensor | None = None,
    scale: float = 1.0,
) -> None:
    """Appends out = residual + scale * (W x + bias) for each part.

    With a `residual` there must be a single part.
    """
    for part in parts:
        register_matrix(recording, part.matrix)
    declare_input(recording, x, [part.matrix for part in parts])
    if residual is not None:
        recording.read_floats(residual)
    f16 = None
    if x.rows is Rows.TOKENS:
        f16_matrices = [
            p.matrix for p in parts if supports_f16_matmul(p.matrix.quant_type, recording.planes)
        ]
        f16 = f16_matmul(recording, recording.capacity(x.rows), f16_matrices)
    if f16 is not None:
        recording.read_floats(x)
    recording.append(_Linear(recording, x, tuple(parts), residual, scale, f16).calls)


def register_matrix(recording: Recording, matrix: Matrix) -> None:
    """Registers a matrix and its bias; raises UnsupportedModelError for a type without kernels."""
    check_type(matrix.quant_type)
    recording.weights.register(matrix.data)
    if matrix.bias is not None:
        recording.weights.register(matrix.bias)


def declare_input(
    recording: Recording, x: RecordedTensor, matrices: Sequence[Matrix | StackedMatrix]
) -> None:
    """Declares that the next operation reads x, in the forms that the matrices' kernels need.

    These are floats, quantised rows, or both. Quantised rows are declared first, because this may
    append the operation that quantises them.
    """
    forms = {reads_floats(matrix.quant_type, recording.planes) for matrix in matrices}
    if False in forms:
        recording.read_quantised(x)
    if True in forms:
        recording.read_floats(x)


class _Linear(Struct, frozen=True):
    recording: Recording
    x: RecordedTensor
    parts: tuple[Part, ...]
    residual: RecordedTensor | None
    scale: float
    f16: F16Matmul | None

    def calls(self, step: StepShape) -> Iterator[Call]:
        rows = step.rows(self.x.rows)
        rest: Sequence[Part] = self.parts
        if self.f16 is not None and uses_library(self.recording, rows, step):
            f16_parts = [part for part in self.parts if self._supports_f16_matmul(part)]
            rest = [part for part in self.parts if not self._supports_f16_matmul(part)]
            yield from self._products(f16_parts, rows, self.f16)
        if rows == 1 and self.recording.features.has("folding"):
            yield from map(self._of_one_token, _mixed_groups(rest))
        elif rows:
            yield from (self._matvec(group, rows) for group in _groups(rest))

    def _of_one_token(self, parts: Sequence[Part]) -> Call:
        types, rec = [part.matrix.quant_type for part in parts], self.recording
        if len(set(types)) == 1:
            return self._matvec(parts, 1)
        return matvec_mixed(
            rec.quantised_of(self.x) if rec.planes else rec.of(self.x),
            [self._matvec_part(part) for part in parts],
            types,
            columns=parts[0].matrix.columns,
            planes=rec.planes,
        )

    def _reads_floats(self, part: Part) -> bool:
        return reads_floats(part.matrix.quant_type, self.recording.planes)

    def _supports_f16_matmul(self, part: Part) -> bool:
        return supports_f16_matmul(part.matrix.quant_type, self.recording.planes)

    def _products(self, parts: Sequence[Part], rows: int, f16: F16Matmul) -> Iterator[Call]:
        rec = self.recording
        residual = None if self.residual is None else rec.of(self.residual)
        yield from f16.source(rec.of(self.x), rows, self.x.width)
        for part in parts:
            m = part.matrix
            data, bias = rec.weights.span(m.data), rec.weights.optional(m.bias)
            on_gpu = OnGpu(data, bias, m.quant_type, m.rows, m.columns, m.scale)
            yield from f16.product(on_gpu, rec.of(part.out), rows, residual, self.scale)

    def _matvec(self, parts: Sequence[Part], rows: int) -> Call:
        matrix, rec = parts[0].matrix, self.recording
        if self._is_tiled(parts[0], rows):
            return matvec_tiled(
                rec.quantised_of(self.x),
                [self._matvec_part(part) for part in parts],
                quant_type=matrix.quant_type,
                tokens=rows,
                columns=matrix.columns,
                residual=None if self.residual is None else rec.of(self.residual),
                scale=self.scale,
            )
        return matvec(
            rec.of(self.x) if self._reads_floats(parts[0]) else rec.quantised_of(self.x),
            [self._matvec_part(part) for part in parts],
            quant_type=matrix.quant_type,
            tokens=rows,
            columns=matrix.columns,
            planes=rec.planes,
            residual=None if self.residual is None else rec.of(self.residual),
            scale=self.scale,
        )

    def _is_tiled(self, part: Part, rows: int) -> bool:
        """Returns True if the tensor-core kernel computes a part of `rows` rows.

        Otherwise `matvec` computes it, which reads the weights once for every 8 tokens.
        """
        is_on = self.recording.features.has("tensor-cores")
        one_plane = self.recording.planes == 1 and not self._reads_floats(part)
        return rows > MAX_TOKENS and one_plane and is_on

    def _matvec_part(self, part: Part) -> MatvecPart:
        weights, m = self.recording.weights, part.matrix
        data, bias = weights.span(m.data), weights.optional(m.bias)
        return MatvecPart(data, bias, self.recording.of(part.out), m.rows, m.scale)


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yields the parts of each launch: adjacent ones of one quant type, at most MAX_PARTS."""
    for _, same in groupby(parts, key=lambda part: part.matrix.quant_type):
        group = list(same)
        for start in range(0, len(group), MAX_PARTS):
            yield group[start : start + MAX_PARTS]


def _mixed_groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yields the parts of each launch for one token: adjacent ones, at most MAX_PARTS.

    They have one quant type, or several quant types without float types.
    """
    group: list[Part] = []
    for part in parts:
        if group and not _fits_together([*group, part]):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _fits_together(parts: Sequence[Part]) -> bool:
    types = {part.matrix.quant_type for part in parts}
    return len(parts) <= MAX_PARTS and (len(types) == 1 or not types & FLOAT_TYPES)
