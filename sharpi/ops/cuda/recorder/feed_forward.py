"""RecordedFeedForward: the operands of a recorded feed-forward, and its intermediate buffers."""

from collections.abc import Sequence

from msgspec import Struct

from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.launchers.experts.experts_grouped import fills_tiles, supports_f16_tiles
from sharpi.ops.cuda.matvec_layout import activation_bytes, reads_floats
from sharpi.ops.cuda.recorded import RecordedTensor
from sharpi.ops.cuda.recorder.f16_matmul import (
    PRODUCT_TOKENS,
    F16Matmul,
    f16_matmul,
    supports_f16_matmul,
)
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import Activation, ExpertWeights, StackedMatrix
from sharpi.ops.routed_capacity import LEAST_TOKENS

_HALF_BYTES = 2


class F16RowsBuffers(Struct, frozen=True):
    """Buffers of rows in f16, and of their scales."""

    rows: Buffer
    scales: Buffer


def supports_f16_rows(recording: Recording, stacked: StackedMatrix) -> bool:
    """Returns True if tiles multiply a matrix by activations in f16, where there are enough."""
    is_on = recording.features.has("tensor-cores")
    return is_on and supports_f16_tiles(stacked.quant_type, recording.planes, stacked.columns)


GROUPED_TOKENS = LEAST_TOKENS  # from so many tokens on, tokens of the same expert share its reads
_INT_BYTES = 4


class RecordedFeedForward(Struct, frozen=True):
    """The operands of a feed-forward."""

    expert_weights: ExpertWeights
    activation: Activation
    ids: RecordedTensor | None  # None if expert 0 computes every token
    weights: RecordedTensor | None  # None if all weights are 1
    residual: RecordedTensor | None
    scale: float

    @property
    def used(self) -> int:
        """The number of experts per token."""
        return 1 if self.ids is None else self.ids.width

    @property
    def gate_and_up(self) -> tuple[StackedMatrix, ...]:
        """The matrices that read x: gate and up, or up alone."""
        b = self.expert_weights
        return (b.up,) if b.gate is None else (b.gate, b.up)

    @property
    def is_fused(self) -> bool:
        """True if one launch computes gate, up and the activation."""
        gate = self.expert_weights.gate
        return gate is not None and gate.quant_type is self.expert_weights.up.quant_type


class Scratch(Struct, frozen=True):
    """The buffers for the intermediate values of a feed-forward."""

    hidden: Buffer  # the input of the down matrix
    pair: tuple[Buffer, ...]  # the outputs of gate and up, if they are computed separately
    offsets: Buffer  # see `group_routes`
    items: Buffer  # see `group_routes`
    parts: Buffer  # results of items, before their sum
    host_rows: Buffer  # the index of each item among the items that the host computes
    f16_matmul: F16Matmul | None
    packed: "Packed | None" = None  # None unless there may be fewer rows than items
    # Inputs in f16, for tiles of F16 and BF16 experts; None where no matrix reads them.
    x_f16: F16RowsBuffers | None = None  # a row for each token
    hidden_f16: F16RowsBuffers | None = None  # a row for each item


class Packed(Struct, frozen=True):
    """The lists of items that are packed into a limited number of rows (see `pack_routes`)."""

    num_rows: int
    offsets: Buffer
    items: Buffer
    item_rows: Buffer  # the row of each item


def make_scratch(
    recording: Recording, x: RecordedTensor, ffn: RecordedFeedForward, *, is_slotted: bool
) -> Scratch:
    """Creates the intermediate buffers of a feed-forward for the maximum number of rows of x.

    With `is_slotted`, the layer has slots, and the host may compute missed experts.
    """
    up, down, most = ffn.expert_weights.up, ffn.expert_weights.down, recording.capacity(x.rows)
    items, is_routed = most * ffn.used, ffn.ids is not None
    f16 = None
    expert_weights = (*ffn.gate_and_up, down)
    if not is_routed and all(
        supports_f16_matmul(b.quant_type, recording.planes) for b in expert_weights
    ):
        f16 = f16_matmul(recording, most, expert_weights)
    packed = _packed(recording, most, ffn) if is_routed else None
    rows = items if packed is None else packed.num_rows
    floats = rows * up.rows * FLOAT_BYTES
    in_pairs = f16 is not None or not ffn.is_fused
    quantised = rows * activation_bytes(down.columns, hidden_planes(recording, ffn))
    has_parts = most >= GROUPED_TOKENS or is_slotted
    return Scratch(
        hidden=recording.buffer(max(floats, quantised)),
        pair=tuple(recording.buffer(floats if in_pairs else 0) for _ in ffn.gate_and_up),
        offsets=recording.buffer((up.num_experts + 1) * _INT_BYTES if is_routed else 0),
        items=recording.buffer(items * _INT_BYTES if is_routed else 0),
        parts=recording.buffer(rows * down.rows * FLOAT_BYTES if has_parts else 0),
        host_rows=recording.buffer(items * _INT_BYTES if is_slotted else 0),
        f16_matmul=f16,
        packed=packed,
        x_f16=_f16_rows(recording, x, ffn, most, ffn.gate_and_up),
        hidden_f16=_f16_rows(recording, x, ffn, min(rows, items), (down,)),
    )


def _f16_rows(
    recording: Recording,
    x: RecordedTensor,
    ffn: RecordedFeedForward,
    num_rows: int,
    matrices: Sequence[StackedMatrix],
) -> F16RowsBuffers | None:
    """Creates buffers for matrices that batches may read in f16: those of routed experts."""
    tokens, num_experts = recording.capacity(x.rows), ffn.expert_weights.down.num_experts
    is_large = tokens >= PRODUCT_TOKENS and fills_tiles(tokens, ffn.used, num_experts)
    # A result that is computed only if it is read must not depend on how many others are read.
    if ffn.ids is None or x.rows is not Rows.TOKENS or not is_large:
        return None
    if not any(supports_f16_rows(recording, each) for each in matrices):
        return None
    return F16RowsBuffers(
        recording.buffer(num_rows * matrices[0].columns * _HALF_BYTES),
        recording.buffer(num_rows * FLOAT_BYTES),
    )


def _packed(recording: Recording, tokens: int, ffn: RecordedFeedForward) -> Packed | None:
    """Creates the lists for packing items into fewer rows; returns None if every item has a row."""
    if recording.routed is None:
        return None
    rows, items = recording.routed.rows(tokens, ffn.used), tokens * ffn.used
    if rows == items:
        return None
    sizes = ffn.expert_weights.up.num_experts + 1, rows, items
    return Packed(rows, *(recording.buffer(size * _INT_BYTES) for size in sizes))


def hidden_planes(recording: Recording, ffn: RecordedFeedForward) -> int:
    """Returns the number of 8-bit planes of the down matrix's input, 0 for floats."""
    is_float = reads_floats(ffn.expert_weights.down.quant_type, recording.planes)
    return 0 if is_float else recording.planes
