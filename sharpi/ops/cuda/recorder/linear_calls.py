"""Records matmuls: of quant blocks for few tokens, of weights dequantised to f16 for many."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct

from sharpi.device.launch import Launch, Span
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
    """Appends out = residual + scale * (W x + bias) for each part; one part with a `residual`."""
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
    recording.weights.register(matrix.data, matrix.bias)


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
        rec, rows = self.recording, step.rows(self.x.rows)
        rest = [self._on_gpu(part) for part in self.parts]
        if self.f16 is not None and uses_library(rec, rows, step):
            in_f16 = [p for p in rest if supports_f16_matmul(p.quant_type, rec.planes)]
            rest = [p for p in rest if not supports_f16_matmul(p.quant_type, rec.planes)]
            yield from self.f16.source(rec.of(self.x), rows, self.x.width)
            for part in in_f16:
                yield from self.f16.product(part, rows, self._residual, self.scale)
        if rows == 1 and rec.features.has("folding"):
            yield from map(self._of_one_token, _mixed_groups(rest))
        elif rows:
            yield from (self._matvec(group, rows) for group in _groups(rest))

    def _on_gpu(self, part: Part) -> MatvecPart:
        rec, m = self.recording, part.matrix
        data, bias = rec.weights.span(m.data), rec.weights.optional(m.bias)
        out = rec.of(part.out)
        return MatvecPart(data, bias, out, m.quant_type, m.rows, m.columns, m.scale)

    @property
    def _residual(self) -> Span | None:
        return None if self.residual is None else self.recording.of(self.residual)

    def _of_one_token(self, parts: Sequence[MatvecPart]) -> Call:
        if len({part.quant_type for part in parts}) == 1:
            return self._matvec(parts, 1)
        rec = self.recording
        x = rec.quantised_of(self.x) if rec.planes else rec.of(self.x)
        return matvec_mixed(x, parts, planes=rec.planes)

    def _matvec(self, parts: Sequence[MatvecPart], rows: int) -> Call:
        """Returns the launch for parts of one type: on tensor cores for more than a few rows."""
        rec = self.recording
        is_float = reads_floats(parts[0].quant_type, rec.planes)
        is_tiled = not is_float and rows > MAX_TOKENS and rec.planes == 1
        launcher: Callable[..., Launch] = partial(matvec, planes=rec.planes)
        if is_tiled and rec.features.has("tensor-cores"):
            launcher = matvec_tiled
        x = rec.of(self.x) if is_float else rec.quantised_of(self.x)
        return launcher(x, parts, tokens=rows, residual=self._residual, scale=self.scale)


def _groups(parts: Sequence[MatvecPart]) -> Iterator[list[MatvecPart]]:
    """Yields the parts of each launch: adjacent ones of one quant type, at most MAX_PARTS."""
    for _, same in groupby(parts, key=lambda part: part.quant_type):
        group = list(same)
        for start in range(0, len(group), MAX_PARTS):
            yield group[start : start + MAX_PARTS]


def _mixed_groups(parts: Sequence[MatvecPart]) -> Iterator[list[MatvecPart]]:
    """Yields the parts of each launch for one token: adjacent ones that fit together."""
    group: list[MatvecPart] = []
    for part in parts:
        if group and not _fits_together([*group, part]):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _fits_together(parts: Sequence[MatvecPart]) -> bool:
    """Returns True if one launch can have parts of these types: of one, or of no float type."""
    types = {part.quant_type for part in parts}
    return len(parts) <= MAX_PARTS and (len(types) == 1 or not types & FLOAT_TYPES)
