"""Matmuls of many tokens: the matrix is dequantised to f16, and `Device.matmul` multiplies it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.features import LIBRARY
from sharpi.ops.cuda.launchers import elementwise, f16_rows
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.launchers.matvec import MatvecPart
from sharpi.ops.cuda.recorded import Call, Product, StepShape
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import Matrix, StackedMatrix

# From so many tokens on, it is faster than reading quant blocks for every 8 tokens.
PRODUCT_TOKENS = 32
_HALF_BYTES = 2


def supports_f16_matmul(quant_type: QuantType, planes: int) -> bool:
    """Returns True if matrices of this type may be multiplied in f16.

    That is all types except F32, and no type if `planes` is 0, for `--precision f32`. F16 matrices
    are multiplied in place, other types are converted first. BF16 numbers between 2^-17 and 65504
    are exact in f16.
    """
    return planes > 0 and quant_type is not QuantType.F32


def is_product(rows: int, step: StepShape) -> bool:
    """Returns True if a step multiplies `rows` rows in f16, by `Device.matmul` or in tiles.

    That takes at least PRODUCT_TOKENS rows of one sequence. In a step of several sequences, each
    has few tokens, and its results must be bit-identical to those of a separate step.
    """
    return rows >= PRODUCT_TOKENS and step.sequences == 1


def uses_library(recording: Recording, rows: int, step: StepShape) -> bool:
    """Returns True if the library computes products and attention of `rows` rows in this step."""
    return is_product(rows, step) and recording.features.has(LIBRARY)


class F16Matmul(Struct, frozen=True):
    """The buffers of an operation's f16 matmuls."""

    recording: Recording
    rows: Buffer  # x in f16
    scales: Buffer  # the scales of `rows`
    matrix: Buffer  # as large as the largest matrix that is not in f16
    out: Buffer

    def source(self, x: Span, tokens: int, width: int) -> Iterator[Call]:
        """Yields the calls that convert floats x (tokens, width), the input of later products."""
        rows, scales, _, _ = self._spans()
        yield f16_rows.to_f16(x, F16Rows(rows, scales), tokens=tokens, width=width)

    def product(
        self,
        part: MatvecPart,
        tokens: int,
        residual: Span | None = None,
        scale: float = 1.0,
    ) -> Iterator[Call]:
        """Yields the calls that compute out = residual + scale * (factor * W x + bias).

        out is (tokens, rows) floats. x is the input that the calls of `source` have converted.
        """
        rows, scales, weights, result = self._spans()
        if part.quant_type is QuantType.F16:
            weights = part.weights
        else:
            sizes = {"rows": part.rows, "columns": part.columns}
            yield elementwise.dequantise(part.weights, weights, quant_type=part.quant_type, **sizes)
        yield Product(rows, weights, result, (tokens, part.rows, part.columns))
        yield f16_rows.from_f16(
            result, scales, part.bias, residual, part.out,
            tokens=tokens, width=part.rows, scale=scale, factor=part.factor,
        )  # fmt: skip

    def _spans(self) -> list[Span]:
        return self.recording.all_spans((self.rows, self.scales, self.matrix, self.out))


def f16_matmul(
    recording: Recording, tokens: int, matrices: Sequence[Matrix | StackedMatrix]
) -> F16Matmul | None:
    """Returns the buffers for f16 matmuls of at most `tokens` tokens.

    Returns None for too few tokens, for no matrices, and if tensor cores are switched off.
    """
    if tokens < PRODUCT_TOKENS or not matrices or not recording.features.has("tensor-cores"):
        return None
    return F16Matmul(
        recording,
        recording.buffer(tokens * max(m.columns for m in matrices) * _HALF_BYTES),
        recording.buffer(tokens * FLOAT_BYTES),
        recording.buffer(max(map(_values_to_convert, matrices)) * _HALF_BYTES),
        recording.buffer(tokens * max(m.rows for m in matrices) * _HALF_BYTES),
    )


def _values_to_convert(matrix: Matrix | StackedMatrix) -> int:
    return 0 if matrix.quant_type is QuantType.F16 else matrix.rows * matrix.columns
