"""ExpertF16Rows: the memory in which tiles of F16 and BF16 experts find activations in f16."""

from msgspec import Struct

from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.launchers.experts.tiles import fills_tiles, supports_f16_tiles
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import StackedMatrix

_HALF_BYTES = 2


class F16RowsBuffers(Struct, frozen=True):
    """Buffers of rows in f16, and of their scales."""

    rows: Buffer
    scales: Buffer


class ExpertF16Rows(Struct, frozen=True):
    """The inputs of gate and up, and of down, in f16; None where no matrix reads them."""

    x: F16RowsBuffers | None = None  # a row for each token
    hidden: F16RowsBuffers | None = None  # a row for each item


def supports_f16_rows(recording: Recording, stacked: StackedMatrix) -> bool:
    """Returns True if tiles multiply a matrix by activations in f16, where there are enough."""
    is_off = "tensor-cores" in recording.disabled
    return not is_off and supports_f16_tiles(stacked.quant_type, recording.planes, stacked.columns)


def expert_f16_rows(
    recording: Recording,
    tokens: int,
    rows: int,
    all_matrices: tuple[StackedMatrix, ...],
    used: int,
) -> ExpertF16Rows:
    """Creates the buffers for batches of at most `tokens`, whose items have `rows` hidden rows.

    `all_matrices` are gate and up, or up alone, and then down. There are no buffers if no batch has
    enough tokens.
    """
    *gate_and_up, down = all_matrices
    if tokens < PRODUCT_TOKENS or not fills_tiles(tokens, used, down.num_experts):
        return ExpertF16Rows()
    return ExpertF16Rows(
        _buffers(recording, tokens, gate_and_up), _buffers(recording, rows, [down])
    )


def _buffers(
    recording: Recording, rows: int, matrices: list[StackedMatrix]
) -> F16RowsBuffers | None:
    """Creates buffers for the input of some matrices, None if none of them reads it."""
    if not any(supports_f16_rows(recording, each) for each in matrices):
        return None
    return F16RowsBuffers(
        recording.buffer(rows * matrices[0].columns * _HALF_BYTES),
        recording.buffer(rows * FLOAT_BYTES),
    )
