"""The parameters of stacked matrices for native operations: address tables, types and sizes."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu import abi
from sharpi.ops.interface import ExpertSource, ExpertWeights, StackedMatrix

Keep = Callable[[np.ndarray | None], int | None]  # keeps the array alive and returns its address


def piece_params(
    expert_weights: ExpertWeights, source: ExpertSource | None, keep: Keep
) -> dict[str, abi.StackedMatrixParams]:
    """Returns the native structs of a layer's expert matrices, by "gate", "up" and "down"."""
    pieces = enumerate(("gate", "up", "down"))
    return {name: _piece_params(expert_weights, i, source, keep) for i, name in pieces}


def _piece_params(
    expert_weights: ExpertWeights, piece: int, source: ExpertSource | None, keep: Keep
) -> abi.StackedMatrixParams:
    """Returns the native struct of a layer's gate (piece 0), up (1) or down (2) matrices.

    With a `source`, which loads experts, the struct points to the source's table of addresses.
    Without one, the addresses point into the mapped file.
    """
    stacked = (expert_weights.gate, expert_weights.up, expert_weights.down)[piece]
    if stacked is None:
        return abi.StackedMatrixParams()
    if expert_weights.layer is None or source is None:
        return matrix_in_memory(stacked, keep)
    # A fused tensor of gate and up is one piece, stored as the gate.
    is_up_in_gate = piece == 1 and stacked.shares_data
    return _params(stacked, source.table(expert_weights.layer, 0 if is_up_in_gate else piece), keep)


def matrix_in_memory(stacked: StackedMatrix, keep: Keep) -> abi.StackedMatrixParams:
    """Returns the native struct of a stacked matrix of which all experts are in memory."""
    return _params(stacked, keep(_addresses(stacked)), keep)


def _params(stacked: StackedMatrix, table: int | None, keep: Keep) -> abi.StackedMatrixParams:
    return abi.StackedMatrixParams(
        data=table, bias=keep(stacked.bias), scales=keep(stacked.scales), type=stacked.quant_type,
        rows=stacked.rows, columns=stacked.columns, first_row=stacked.first_row,
    )  # fmt: skip


def _addresses(stacked: StackedMatrix) -> npt.NDArray[np.uint64]:
    """Returns the address of each expert's matrix, (experts,)."""
    stride = stacked.data.nbytes // stacked.num_experts
    offsets = np.arange(stacked.num_experts, dtype=np.uint64) * np.uint64(stride)
    return np.uint64(stacked.data.ctypes.data) + offsets
