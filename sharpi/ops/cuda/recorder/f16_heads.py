"""Matmuls of each head with its own F16 or BF16 matrix, for many tokens in one call."""

from collections.abc import Iterator

from msgspec import Struct

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.launchers import dequantise, f16_rows
from sharpi.ops.cuda.recorded import BatchedProduct, Call, RecordedTensor
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS, supports_f16_matmul
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import StackedMatrix

_TYPES = (QuantType.F16, QuantType.BF16)  # other types are multiplied by int8 activations
_HALF_BYTES = 2


class F16Heads(Struct, frozen=True):
    """The buffers of an operation's f16 matmuls, with a row for each head of each token."""

    recording: Recording
    rows: Buffer  # x in f16
    scales: Buffer  # the scales of `rows`
    matrices: Buffer  # the matrices of BF16 in f16
    out: Buffer

    def product(self, x: Span, stacked: StackedMatrix, out: Span, tokens: int) -> Iterator[Call]:
        """Yields the calls that compute out (tokens, heads, rows) from x (tokens, heads, columns).

        Every row of x has a separate scale.
        """
        buffers = (self.rows, self.scales, self.matrices, self.out)
        rows, scales, weights, result = self.recording.all_spans(buffers)
        heads, width, columns = stacked.num_experts, stacked.rows, stacked.columns
        data = self.recording.weights.span(stacked.data)
        yield f16_rows.to_f16(x, rows, scales, tokens=tokens * heads, width=columns)
        if stacked.quant_type is QuantType.F16:
            weights = data
        else:
            yield dequantise.dequantise(
                data, weights, quant_type=stacked.quant_type, rows=heads * width, columns=columns
            )
        yield BatchedProduct(rows, weights, result, (tokens, heads, width, columns))
        yield f16_rows.from_f16(
            result, scales, None, None, out, tokens=tokens * heads, width=width, scale=1.0
        )


def f16_heads(recording: Recording, x: RecordedTensor, stacked: StackedMatrix) -> F16Heads | None:
    """Returns the buffers for f16 matmuls of each head of x with its matrix in `stacked`.

    A row of x is (heads * columns,). Returns None for too few tokens, if tensor cores are switched
    off, and for matrices of other types, with biases or scales, or not contiguous in their tensor.
    """
    tokens, heads = recording.capacity(x.rows), stacked.num_experts
    is_off = "tensor-cores" in recording.disabled or x.rows is not Rows.TOKENS
    if tokens < PRODUCT_TOKENS or is_off or not _is_supported(stacked, recording.planes):
        return None
    converted = 0 if stacked.quant_type is QuantType.F16 else heads * stacked.rows * stacked.columns
    return F16Heads(
        recording,
        recording.buffer(tokens * heads * stacked.columns * _HALF_BYTES),
        recording.buffer(tokens * heads * FLOAT_BYTES),
        recording.buffer(converted * _HALF_BYTES),
        recording.buffer(tokens * heads * stacked.rows * _HALF_BYTES),
    )


def _is_supported(stacked: StackedMatrix, planes: int) -> bool:
    is_plain = stacked.bias is None and stacked.scales is None and not stacked.shares_data
    return (
        is_plain
        and stacked.quant_type in _TYPES
        and supports_f16_matmul(stacked.quant_type, planes)
    )
