"""Records the operations that compute each row independently of the other rows, as matmuls do."""

from collections.abc import Callable, Sequence
from ctypes import Array, c_int32

from sharpi.ops.attention_shape import HeadGate, RopeTable
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.recorder_tape import FLOAT_BYTES, Buffer, Tape
from sharpi.ops.interface import FloatArray, Matrix, Unary


class LinearRecorder(Tape):
    """Implements the matmuls of `Ops[Buffer]`."""

    def linear(self, x: Buffer, matrices: Sequence[Matrix]) -> list[Buffer]:
        outs = [self._buffer(m.rows, x.rows) for m in matrices]
        self._linear(x, [(m, out, None, 1.0) for m, out in zip(matrices, outs, strict=True)])
        return outs

    def linear_add(self, x: Buffer, matrix: Matrix, residual: Buffer, scale: float) -> Buffer:
        out = self._buffer(matrix.rows, x.rows)
        self._linear(x, [(matrix, out, residual, scale)])
        return out

    def _linear(self, x: Buffer, parts: list[tuple[Matrix, Buffer, Buffer | None, float]]) -> None:
        def matrices() -> Array[abi.MatrixParams]:
            return (abi.MatrixParams * abi.MAX_MATRICES)(*(self._matrix(*part) for part in parts))

        others = [b for _, out, residual, _ in parts for b in (out, residual) if b is not None]
        self._add(
            OpKind.LINEAR, abi.LinearParams, *others, x=x, matrices=matrices,
            num_matrices=len(parts), precision=self._limits.precision_code, rows=x.rows,
        )  # fmt: skip

    def _matrix(
        self, m: Matrix, out: Buffer, residual: Buffer | None, scale: float
    ) -> abi.MatrixParams:
        fields = self._values({"data": m.data, "bias": m.bias, "residual": residual, "out": out})
        return abi.MatrixParams(
            type=m.quant_type, rows=m.rows, columns=m.columns, scale=scale, weight_scale=m.scale,
            **fields,
        )  # fmt: skip


class RowRecorder(Tape):
    """Implements the embedding, norms, rotary embedding and elementwise operations of `Ops`."""

    def embed(self, table: Matrix, scale: float) -> Buffer:
        return self._add(
            OpKind.EMBED, abi.EmbedParams, out=self._buffer(table.columns), table=table.data,
            type=table.quant_type, rows=table.rows, columns=table.columns,
            scale=scale * table.scale,
        )  # fmt: skip

    def rms_norm(self, x: Buffer, weight: FloatArray, epsilon: float, groups: int = 1) -> Buffer:
        return self._norm(x, weight, epsilon, groups, self._buffer(x.width, x.rows))

    def _norm(
        self, x: Buffer, weight: FloatArray, epsilon: float, groups: int, out: Buffer
    ) -> Buffer:
        return self._add(
            OpKind.RMS_NORM, abi.RmsNormParams, out=out, x=x, weight=weight,
            width=x.width // groups, groups=groups,
            weight_per_group=int(groups > 1 and weight.size == x.width), epsilon=epsilon,
            rows=out.rows,
        )  # fmt: skip

    def layer_norm(self, x: Buffer, weight: FloatArray, bias: FloatArray, epsilon: float) -> Buffer:
        return self._add(
            OpKind.LAYER_NORM, abi.LayerNormParams, out=self._buffer(x.width, x.rows), x=x,
            weight=weight, bias=bias, width=x.width, epsilon=epsilon, rows=x.rows,
        )  # fmt: skip

    def scale_by_position(self, x: Buffer, interval: int, rate: float, offset: int) -> Buffer:
        return self._add(
            OpKind.SCALE_BY_POSITION, abi.ScaleByPositionParams, x=x, width=x.width,
            interval=interval, rate=rate, offset=offset,
        )  # fmt: skip

    def gate_heads(self, gate: Buffer, x: Buffer, activation: HeadGate) -> Buffer:
        return self._add(
            OpKind.GATE_HEADS, abi.GateHeadsParams, x=x, gate=gate, width=x.width,
            num_gates=gate.width, activation=activation,
        )  # fmt: skip

    def join(self, first: Buffer, second: Buffer, groups: int = 1) -> Buffer:
        out = self._buffer(first.width + second.width, first.rows)
        widths = (c_int32 * 2)(first.width // groups, second.width // groups)
        return self._add(
            OpKind.JOIN, abi.JoinParams, out=out, first=first, second=second, widths=widths,
            groups=groups, rows=first.rows,
        )  # fmt: skip

    def part(self, x: Buffer, begin: int, width: int) -> Buffer:
        return self._add(
            OpKind.PART, abi.PartParams, out=self._buffer(width, x.rows), x=x, x_width=x.width,
            begin=begin, width=width, rows=x.rows,
        )  # fmt: skip

    def rope_angles(self, table: RopeTable) -> Buffer:
        half = len(table.frequencies)
        out = self._buffer(2 * half)
        return self._add(
            OpKind.ROPE_ANGLES, abi.RopeAnglesParams, cosines=out, sines=self._sines(out),
            frequencies=table.frequencies, half=half, scale=table.scale,
        )  # fmt: skip

    def _sines(self, angles: Buffer) -> Callable[[], int]:
        """Returns a function that returns the address of the sines, which follow all cosines."""
        offset = self._limits.max_tokens * angles.width // 2 * FLOAT_BYTES
        return lambda: self._at(angles, offset)

    def rope(self, x: Buffer, num_heads: int, angles: Buffer, interleaved: bool) -> Buffer:
        return self._add(
            OpKind.ROPE, abi.RopeParams, x=x, cosines=angles, sines=self._sines(angles),
            heads=num_heads, head_dim=x.width // num_heads, half=angles.width // 2,
            interleaved=interleaved,
        )  # fmt: skip

    def scale(self, x: Buffer, factor: float) -> Buffer:
        return self.add(None, x, factor)

    def add(self, a: Buffer | None, b: Buffer, scale: float) -> Buffer:
        return self._add(
            OpKind.ADD_SCALED, abi.AddScaledParams, out=self._buffer(b.width, b.rows), a=a, b=b,
            width=b.width, scale=scale, rows=b.rows,
        )  # fmt: skip

    def unary(self, x: Buffer, function: Unary, *parameters: float) -> Buffer:
        given = dict(zip("abcd", parameters, strict=False))
        return self._add(
            OpKind.UNARY, abi.UnaryParams, x=x, width=x.width, rows=x.rows, function=function,
            **given,
        )  # fmt: skip

    def select_outputs(self, x: Buffer) -> Buffer:
        out = self._buffer(x.width, Rows.OUTPUTS)
        return self._add(OpKind.GATHER, abi.GatherParams, out=out, x=x, width=x.width)
