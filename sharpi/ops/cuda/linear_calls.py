"""Matrix products of a recording: few tokens on the quant blocks, many through f16 matrices."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.abi import Rows
from sharpi.ops.buffers import Buffer
from sharpi.ops.cuda import dequantise, half_rows
from sharpi.ops.cuda.activations import activation_bytes
from sharpi.ops.cuda.matvec import MatvecPart, matvec
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.cuda.values import Call, Extent, Product, Value
from sharpi.ops.interface import Matrix

FLOAT_TYPES = frozenset({QuantType.F32, QuantType.F16, QuantType.BF16})
MATVEC_TOKENS = 8  # of one launch
MATVEC_PARTS = 3
PRODUCT_TOKENS = 32  # from here on a matrix is dequantised for the device's library
_HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix of a product, and where its rows go."""

    matrix: Matrix
    out: Value


@dataclass(frozen=True, slots=True)
class Halves:
    """Buffers of a product in f16: rows with their scales, the largest matrix, its result."""

    rows: Buffer
    scales: Buffer
    matrix: Buffer
    out: Buffer


def takes_floats(recording: Recording, quant_type: QuantType) -> bool:
    """Whether a matrix is multiplied with activations as they are."""
    return recording.planes == 0 or quant_type in FLOAT_TYPES


def linear(
    recording: Recording,
    x: Value,
    parts: Sequence[Part],
    residual: Value | None = None,
    scale: float = 1.0,
) -> None:
    """Appends out = residual + scale * (W x + bias) for each part; a residual has one part."""
    for part in parts:
        recording.weights.want(part.matrix.data)
        if part.matrix.bias is not None:
            recording.weights.want(part.matrix.bias)
    if residual is not None:
        recording.floats(residual)
    for kind in {takes_floats(recording, part.matrix.quant_type) for part in parts}:
        recording.floats(x) if kind else recording.rounded(x)
    operation = _Linear(recording, x, tuple(parts), residual, scale, _halves(recording, x, parts))
    recording.append(operation.calls)


def _halves(recording: Recording, x: Value, parts: Sequence[Part]) -> Halves | None:
    """Room for products in f16, where some may be computed so."""
    most = recording.limits.max_tokens
    matrices = [p.matrix for p in parts if not takes_floats(recording, p.matrix.quant_type)]
    if x.rows is not Rows.TOKENS or most < PRODUCT_TOKENS or not matrices:
        return None
    recording.floats(x)
    return Halves(
        recording.buffer(most * x.width * _HALF_BYTES),
        recording.buffer(most * FLOAT_BYTES),
        recording.buffer(max(m.rows * m.columns for m in matrices) * _HALF_BYTES),
        recording.buffer(most * max(m.rows for m in matrices) * _HALF_BYTES),
    )


@dataclass(frozen=True, slots=True)
class _Linear:
    recording: Recording
    x: Value
    parts: tuple[Part, ...]
    residual: Value | None
    scale: float
    halves: Halves | None

    def calls(self, extent: Extent) -> Iterator[Call]:
        rows = extent.rows(self.x.rows)
        if self.halves is not None and rows >= PRODUCT_TOKENS:
            yield from self._products(rows, self.halves)
            return
        for first in range(0, rows, MATVEC_TOKENS):
            count = min(MATVEC_TOKENS, rows - first)
            for group in self._groups():
                yield self._matvec(group, first, count)

    def _groups(self) -> Iterator[list[Part]]:
        """Parts that one launch computes: of one quant type, few, next to each other."""
        for _, same in groupby(self.parts, key=lambda part: part.matrix.quant_type):
            parts = list(same)
            for start in range(0, len(parts), MATVEC_PARTS):
                yield parts[start : start + MATVEC_PARTS]

    def _matvec(self, parts: Sequence[Part], first: int, count: int) -> Call:
        matrix, at = parts[0].matrix, self.recording
        residual = None
        if self.residual is not None:
            residual = rows_of(at, self.residual, first, count)
        return matvec(
            self._source(matrix, first, count),
            [self._matvec_part(part, first, count) for part in parts],
            quant_type=matrix.quant_type,
            tokens=count,
            columns=matrix.columns,
            planes=at.planes,
            residual=residual,
            scale=self.scale,
        )

    def _source(self, matrix: Matrix, first: int, count: int) -> Span:
        if takes_floats(self.recording, matrix.quant_type):
            return rows_of(self.recording, self.x, first, count)
        return rounded_rows_of(self.recording, self.x, first, count)

    def _matvec_part(self, part: Part, first: int, count: int) -> MatvecPart:
        weights = self.recording.weights
        return MatvecPart(
            weights.span(part.matrix.data),
            weights.optional(part.matrix.bias),
            rows_of(self.recording, part.out, first, count),
            part.matrix.rows,
        )

    def _products(self, rows: int, halves: Halves) -> Iterable[Call]:
        at = self.recording
        x, scales, matrix, out = at.all_spans(
            (halves.rows, halves.scales, halves.matrix, halves.out)
        )
        if any(not takes_floats(at, part.matrix.quant_type) for part in self.parts):
            yield half_rows.to_half(at.of(self.x), x, scales, tokens=rows, width=self.x.width)
        for part in self.parts:
            m = part.matrix
            if takes_floats(at, m.quant_type):
                for first in range(0, rows, MATVEC_TOKENS):
                    yield self._matvec([part], first, min(MATVEC_TOKENS, rows - first))
                continue
            yield dequantise.dequantise(
                at.weights.span(m.data), matrix,
                quant_type=m.quant_type, rows=m.rows, columns=m.columns,
            )  # fmt: skip
            yield Product(x, matrix, out, (rows, m.rows, m.columns))
            yield half_rows.from_half(
                out,
                scales,
                at.weights.optional(m.bias),
                None if self.residual is None else at.of(self.residual),
                at.of(part.out),
                tokens=rows,
                width=m.rows,
                scale=self.scale,
            )


def rows_of(recording: Recording, value: Value, first: int, count: int) -> Span:
    """Some rows of a value's floats."""
    row = value.width * FLOAT_BYTES
    return recording.of(value).part(first * row, count * row)


def rounded_rows_of(recording: Recording, value: Value, first: int, count: int) -> Span:
    """Some rows of a value as it was rounded."""
    span = recording.at(value.rounded)
    assert span is not None
    row = activation_bytes(value.width, recording.planes)
    return span.part(first * row, count * row)
