"""Records products of the rows of a step with matrices."""

from collections.abc import Sequence
from ctypes import Structure

from sharpi.ops import abi
from sharpi.ops.abi import OpKind
from sharpi.ops.buffers import Buffer
from sharpi.ops.interface import Matrix
from sharpi.ops.recorder_tape import Tape


class LinearRecorder(Tape):
    """The matrix products of `Ops[Buffer]`."""

    def linear(self, x: Buffer, matrices: Sequence[Matrix]) -> list[Buffer]:
        outs = [self._buffer(m.rows, x.rows) for m in matrices]
        self._linear(x, [(m, out, None, 1.0) for m, out in zip(matrices, outs, strict=True)])
        return outs

    def linear_add(self, x: Buffer, matrix: Matrix, residual: Buffer, scale: float) -> Buffer:
        out = self._buffer(matrix.rows, x.rows)
        self._linear(x, [(matrix, out, residual, scale)])
        return out

    def _linear(self, x: Buffer, parts: list[tuple[Matrix, Buffer, Buffer | None, float]]) -> None:
        def params() -> Structure:
            p = abi.LinearParams(self._at(x), len(parts), self._limits.precision_code, x.rows)
            for i, (m, out, residual, scale) in enumerate(parts):
                p.matrices[i] = abi.MatrixParams(
                    self._data(m.data), m.quant_type, m.rows, m.columns, 0, self._data(m.bias),
                    self._at(residual), self._at(out), scale, m.scale,
                )  # fmt: skip
            return p

        touched = [
            x,
            *(out for _, out, _, _ in parts),
            *(r for _, _, r, _ in parts if r is not None),
        ]
        self._add(OpKind.LINEAR, touched, params)
