"""ExpertOperands: the memory of a feed-forward's inputs, routes and results."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sharpi.device.launch import Launch, Span
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.launchers.experts.experts_grouped import fills_tiles
from sharpi.ops.cuda.launchers.f16_rows import F16Rows, items_to_f16, to_f16
from sharpi.ops.cuda.matvec_layout import activation_bytes, reads_floats
from sharpi.ops.cuda.recorded import RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.f16_matmul import is_product
from sharpi.ops.cuda.recorder.feed_forward import (
    F16RowsBuffers,
    RecordedFeedForward,
    Scratch,
    hidden_planes,
    supports_f16_rows,
)
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import StackedMatrix

# The stacked matrices of a feed-forward: gate and up, or up alone, then down.
Parts = Sequence[GpuStackedMatrix]


class ExpertOperands(Struct, frozen=True):
    """The memory of one feed-forward's operands, from the token `first` on."""

    recording: Recording
    x: RecordedTensor
    ffn: RecordedFeedForward
    out: RecordedTensor
    scratch: Scratch
    step: StepShape | None = None  # decides the memory of the routes
    first: int = 0  # the first token to compute

    def gate_and_up(self, parts: Parts) -> Iterator[tuple[StackedMatrix, GpuStackedMatrix, Span]]:
        """Yields gate and up, or up alone, each with the memory of its products."""
        for stacked, part, out in zip(
            self.ffn.gate_and_up, parts[:-1], self.scratch.pair, strict=True
        ):
            yield stacked, part, self.at(out)

    def _source(self, stacked: StackedMatrix) -> Span:
        """Returns the rows of x as the matrix's kernels read them: floats, or quantised rows."""
        rec = self.recording
        if reads_floats(stacked.quant_type, rec.planes):
            return self.input
        row_bytes = activation_bytes(self.x.width, rec.planes)
        return self._from_first_token(rec.quantised_of(self.x), row_bytes)

    def _from_first_token(self, span: Span, row_bytes: int) -> Span:
        """Returns the rows of a span from the first token on."""
        before = self.first * row_bytes
        return span.part(before, span.num_bytes - before)

    def _rows_of(self, value: RecordedTensor | None) -> Span | None:
        """Returns the rows of a value from the first token on; None for None."""
        if value is None:
            return None
        return self._from_first_token(self.recording.of(value), value.width * FLOAT_BYTES)

    @property
    def input(self) -> Span:
        """The memory of the feed-forward's input x, in floats."""
        return self._from_first_token(self.recording.of(self.x), self.x.width * FLOAT_BYTES)

    @property
    def sums(self) -> Span:
        """The memory of the feed-forward's result, (T, rows) floats."""
        return self._from_first_token(self.recording.of(self.out), self.out.width * FLOAT_BYTES)

    @property
    def _hidden_planes(self) -> int:
        return hidden_planes(self.recording, self.ffn)

    @property
    def ids(self) -> Span | None:
        """The memory of the routes' expert ids, (T, used); None without routes."""
        ids = self.ffn.ids
        if ids is None or ids.routes is None or self.step is None:
            return self._rows_of(ids)
        return self._from_first_token(ids.routes.span(self.step), ids.width * FLOAT_BYTES)

    @property
    def values(self) -> Span:
        """The memory of the items' results before their sum, (T * used, rows)."""
        return self.at(self.scratch.parts)

    @property
    def input_weights(self) -> Span | None:
        """The weights that multiply the experts' inputs, (T, used); None without such weights."""
        weighs_input = self.ffn.expert_weights.weighs_input
        return self._rows_of(self.ffn.weights) if weighs_input else None

    @property
    def weights(self) -> Span | None:
        """The weights that multiply the experts' results, (T, used); None without such weights."""
        weighs_input = self.ffn.expert_weights.weighs_input
        return None if weighs_input else self._rows_of(self.ffn.weights)

    @property
    def residual(self) -> Span | None:
        """The residual that the sum is added to, None without one."""
        return self._rows_of(self.ffn.residual)

    def at(self, buffer: Buffer) -> Span:
        """Returns the memory of a buffer."""
        span = self.recording.at(buffer)
        assert span is not None
        return span


_HALF_BYTES = 2


class ExpertF16Operands(ExpertOperands, frozen=True):
    """Converts the inputs of the matrices to f16, if the step's tokens are enough for tiles."""

    @property
    def uses_f16_rows(self) -> bool:
        """True if the step's tiles read activations in f16.

        That depends on the whole step, not on how it is cut, since results in f16 have other bits.
        As f16 matmuls, they need many tokens of one sequence.
        """
        step, ffn, scratch = self.step, self.ffn, self.scratch
        is_on = self.recording.features.has("tensor-cores")
        if step is None or not is_on or not (scratch.x_f16 or scratch.hidden_f16):
            return False
        experts = ffn.expert_weights.down.num_experts
        return is_product(step.tokens, step) and fills_tiles(step.tokens, ffn.used, experts)

    def x_to_f16(self, tokens: int) -> Iterator[Launch]:
        """Yields the launch that converts x, before all products of gate and up."""
        rows = self._x_in_f16
        if rows is not None:
            yield to_f16(self.input, rows, tokens=tokens, width=self.x.width)

    def hidden_to_f16(
        self, offsets: Span, items: Span | None, experts: int, num_items: int
    ) -> Iterator[Launch]:
        """Yields the launch that converts the hidden values of some experts' items."""
        rows, width = self._hidden_in_f16, self.ffn.expert_weights.down.columns
        if rows is not None:
            hidden = self.at(self.scratch.hidden)
            yield items_to_f16(
                *(hidden, offsets, items, rows), experts=experts, num_items=num_items, width=width
            )

    def grouped_source(self, stacked: StackedMatrix) -> Span | F16Rows:
        """Returns x as a stacked matrix reads it in products that are grouped by expert."""
        rows = self._x_in_f16
        if rows is None or not supports_f16_rows(self.recording, stacked):
            return self._source(stacked)
        return rows

    @property
    def grouped_hidden(self) -> Span | F16Rows:
        """The hidden values as the down matrix reads them in products grouped by expert."""
        return self._hidden_in_f16 or self.at(self.scratch.hidden)

    @property
    def _x_in_f16(self) -> F16Rows | None:
        buffers = self.scratch.x_f16
        if buffers is None or not self.uses_f16_rows:
            return None
        rows, scales = self._spans(buffers)
        return F16Rows(
            self._from_first_token(rows, self.x.width * _HALF_BYTES),
            self._from_first_token(scales, FLOAT_BYTES),
        )

    @property
    def _hidden_in_f16(self) -> F16Rows | None:
        buffers = self.scratch.hidden_f16
        return None if buffers is None or not self.uses_f16_rows else self._spans(buffers)

    def _spans(self, buffers: F16RowsBuffers) -> F16Rows:
        return F16Rows(self.at(buffers.rows), self.at(buffers.scales))
