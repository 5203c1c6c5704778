"""Records routing, and experts that are in memory or are loaded during the step."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.recorder_rows import LinearRecorder, RowRecorder
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.interface import (
    Activation,
    ExpertSource,
    ExpertWeights,
    FloatArray,
    Matrix,
    Router,
    StackedMatrix,
)

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
    """Returns the native struct of the gate (piece 0), up (1) or down (2) matrices, by address."""
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


class ExpertsRecorder(RowRecorder, LinearRecorder):
    """Implements routes and experts of `Ops`; `_source` loads experts that are not in memory."""

    _source: ExpertSource | None
    _keeps_router_logits: bool

    def route(self, logits: Buffer, router: Router) -> tuple[Buffer, Buffer]:
        ids = self._buffer(router.num_used, logits.rows)
        weights = self._buffer(router.num_used, logits.rows)
        ids.kept = True  # statistics read the step's routes afterwards
        self._routes.append(ids)
        if self._keeps_router_logits:
            logits.kept = True
            self._router_logits.append(logits)
        self._add(
            OpKind.ROUTE, abi.RouteParams, logits=logits, bias=router.bias, ids=ids,
            weights=weights, num_experts=router.num_experts, k=router.num_used,
            scoring=router.scoring, normalise=router.normalise, scale=router.scale,
            num_groups=router.num_groups, groups_used=router.groups_used, rows=logits.rows,
        )  # fmt: skip
        if self._source is not None:
            self._add(
                OpKind.ACQUIRE, abi.AcquireParams, feed=self._source.handle, ids=ids,
                layer=router.layer, k=ids.width, rows=ids.rows,
            )  # fmt: skip
        return ids, weights

    def predict_routes(
        self, x: Buffer, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        source = self._source
        if source is None or not source.uses_router:
            return
        h, logits = self._buffer(x.width, Rows.PREDICTED), self._buffer(matrix.rows, Rows.PREDICTED)
        self._norm(x, norm, epsilon, 1, h)
        self._linear(h, [(matrix, logits, None, 1.0)])
        self._add(
            OpKind.PREDICT_ROUTES, abi.PredictRoutesParams, feed=source.handle, logits=logits,
            bias=router.bias, layer=router.layer, num_experts=router.num_experts,
            k=router.num_used,
        )  # fmt: skip

    def experts(
        self,
        x: Buffer,
        expert_weights: ExpertWeights,
        activation: Activation,
        route: tuple[Buffer | None, Buffer] | None,
        residual: Buffer | None,
        scale: float = 1.0,
    ) -> Buffer:
        ids, weights = route or (None, None)
        feed = None if ids is None or self._source is None else self._source.handle
        out = self._buffer(expert_weights.down.rows, x.rows)
        return self._add(
            OpKind.EXPERTS, abi.ExpertsParams, out=out, x=x, ids=ids, weights=weights,
            residual=residual, **piece_params(expert_weights, self._source, self._data),
            num_experts=expert_weights.up.num_experts, k=1 if ids is None else ids.width,
            activation=activation, precision=self._limits.precision_code, scale=scale,
            rows=x.rows, feed=feed, layer=expert_weights.layer or 0,
            weighs_input=expert_weights.weighs_input,
        )  # fmt: skip

    def head_linear(self, x: Buffer, stacked: StackedMatrix) -> Buffer:
        return self._add(
            OpKind.HEAD_LINEAR, abi.HeadLinearParams,
            out=self._buffer(stacked.num_experts * stacked.rows), x=x,
            stacked=matrix_in_memory(stacked, self._data), num_heads=stacked.num_experts,
            precision=self._limits.precision_code,
        )  # fmt: skip
