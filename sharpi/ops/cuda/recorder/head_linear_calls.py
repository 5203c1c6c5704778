"""Records the matmul of each head with a separate matrix, by the kernels for experts.

Head h uses expert h. For many tokens, F16 and BF16 matrices are multiplied by
`Device.batched_matmul`, all heads in one call.
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.launchers import elementwise, f16_rows
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped, route
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix, Items
from sharpi.ops.cuda.launchers.experts.experts_grouped import Groups
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.matvec_layout import activation_bytes, reads_floats
from sharpi.ops.cuda.recorded import BatchedProduct, Call, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS, supports_f16_matmul, uses_library
from sharpi.ops.cuda.recorder.feed_forward import GROUPED_TOKENS
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
        in_f16 = F16Rows(rows, scales)
        yield f16_rows.to_f16(x, in_f16, tokens=tokens * heads, width=columns)
        if stacked.quant_type is QuantType.F16:
            weights = data
        else:
            yield elementwise.dequantise(
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
    is_off = not recording.features.has("tensor-cores") or x.rows is not Rows.TOKENS
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


_INT_BYTES = 4


def head_linear(
    recording: Recording,
    expert_weights: GpuExpertWeights,
    x: RecordedTensor,
    stacked: StackedMatrix,
) -> RecordedTensor:
    """Appends the products of x (heads * columns,) with stacked[h]: (heads * rows,)."""
    recording.read_floats(x)
    items = recording.capacity(x.rows) * stacked.num_experts
    planes = 0 if reads_floats(stacked.quant_type, recording.planes) else recording.planes
    operation = _HeadLinear(
        recording,
        x,
        stacked,
        expert_weights.register(stacked),
        recording.value(stacked.num_experts * stacked.rows, x.rows),
        recording.weights.constant("heads", items, stacked.num_experts, make=_heads),
        recording.buffer(items * activation_bytes(stacked.columns, planes)),
        recording.buffer((stacked.num_experts + 1) * _INT_BYTES),
        recording.buffer(items * _INT_BYTES),
        planes,
        f16_heads(recording, x, stacked),
    )
    recording.extend_lifetime(operation.quantised if planes else x.floats)
    recording.append(operation.calls)
    return operation.out


def _heads(items: int, heads: int) -> IntArray:
    """Returns the expert of each item, (items,)."""
    return np.arange(items, dtype=np.int32) % heads


class _HeadLinear(Struct, frozen=True):
    """The product of each head with its matrix."""

    recording: Recording
    x: RecordedTensor
    stacked: StackedMatrix
    part: Callable[[], GpuStackedMatrix]
    out: RecordedTensor
    ids: IntArray  # (items,), the head of each item
    quantised: Buffer
    offsets: Buffer  # see `group_routes`, for many tokens
    items: Buffer  # see `group_routes`, for many tokens
    planes: int
    f16: F16Heads | None

    def calls(self, step: StepShape) -> Iterator[Call]:
        rec, stacked = self.recording, self.stacked
        tokens, heads = step.rows(self.x.rows), stacked.num_experts
        if self.f16 is not None and uses_library(rec, tokens, step):
            yield from self.f16.product(rec.of(self.x), stacked, rec.of(self.out), tokens)
            return
        if self.planes:
            yield elementwise.quantise(
                rec.of(self.x), self._source,
                tokens=tokens * heads, columns=stacked.columns, planes=self.planes,
            )  # fmt: skip
        ids = rec.weights.span(self.ids)
        given, planes = (self.part(), rec.of(self.out)), self.planes
        if tokens < GROUPED_TOKENS:
            items = Items(ids, tokens * heads)
            yield experts.product(self._source, items, *given, planes=planes)
            return
        offsets, listed = rec.all_spans((self.offsets, self.items))
        sizes = {"tokens": tokens, "used": heads, "experts": heads}
        yield route.group_routes(ids, offsets, listed, **sizes)
        groups = Groups(offsets, listed, heads, used=1)
        yield experts_grouped.product(self._source, groups, *given, planes=planes)

    @property
    def _source(self) -> Span:
        """The heads of x, (items, columns), as the kernels read them: floats, or quantised rows."""
        (quantised,) = self.recording.all_spans((self.quantised,))
        return quantised if self.planes else self.recording.of(self.x)
