"""ExpertF16Operands: the operands of a feed-forward whose tiles read activations in f16."""

from collections.abc import Iterator

from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts.tiles import fills_tiles
from sharpi.ops.cuda.launchers.f16_rows import F16Rows, items_to_f16, to_f16
from sharpi.ops.cuda.recorder.expert_f16_rows import F16RowsBuffers, supports_f16_rows
from sharpi.ops.cuda.recorder.expert_operands import ExpertOperands
from sharpi.ops.cuda.recorder.f16_matmul import is_product
from sharpi.ops.cuda.recording import FLOAT_BYTES
from sharpi.ops.interface import StackedMatrix

_HALF_BYTES = 2


class ExpertF16Operands(ExpertOperands, frozen=True):
    """Converts the inputs of the matrices to f16, if the step's tokens are enough for tiles."""

    @property
    def uses_f16_rows(self) -> bool:
        """True if the step's tiles read activations in f16.

        That depends on the whole step, not on how it is cut, since results in f16 have other bits.
        As f16 matmuls, they need many tokens of one sequence.
        """
        step, ffn, rows = self.step, self.ffn, self.scratch.f16_rows
        if step is None or (rows.x is None and rows.hidden is None):
            return False
        experts = ffn.expert_weights.down.num_experts
        return is_product(step.tokens, step) and fills_tiles(step.tokens, ffn.used, experts)

    def x_to_f16(self, tokens: int) -> Iterator[Launch]:
        """Yields the launch that converts x, before all products of gate and up."""
        rows = self._x_in_f16
        if rows is not None:
            width = self.x.width
            yield to_f16(self.input, rows.rows, rows.scales, tokens=tokens, width=width)

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
        buffers = self.scratch.f16_rows.x
        if buffers is None or not self.uses_f16_rows:
            return None
        rows, scales = self._spans(buffers)
        return F16Rows(
            self._from_first_token(rows, self.x.width * _HALF_BYTES),
            self._from_first_token(scales, FLOAT_BYTES),
        )

    @property
    def _hidden_in_f16(self) -> F16Rows | None:
        buffers = self.scratch.f16_rows.hidden
        return None if buffers is None or not self.uses_f16_rows else self._spans(buffers)

    def _spans(self, buffers: F16RowsBuffers) -> F16Rows:
        return F16Rows(self.at(buffers.rows), self.at(buffers.scales))
