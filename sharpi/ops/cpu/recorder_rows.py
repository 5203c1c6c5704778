"""Records the operations that compute each row independently of the other rows, as matmuls do."""

from collections.abc import Sequence
from ctypes import Structure, c_int32

from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.recorder_tape import FLOAT_BYTES, Buffer, Tape
from sharpi.ops.interface import FloatArray, HeadGate, Matrix, RopeTable


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
        def params() -> Structure:
            p = abi.LinearParams(
                x=self._at(x),
                num_matrices=len(parts),
                precision=self._limits.precision_code,
                rows=x.rows,
            )
            for i, (m, out, residual, scale) in enumerate(parts):
                p.matrices[i] = abi.MatrixParams(
                    data=self._data(m.data), type=m.quant_type, rows=m.rows, columns=m.columns,
                    bias=self._data(m.bias), residual=self._at(residual), out=self._at(out),
                    scale=scale, weight_scale=m.scale,
                )  # fmt: skip
            return p

        buffers = [
            x,
            *(out for _, out, _, _ in parts),
            *(r for _, _, r, _ in parts if r is not None),
        ]
        self._add(OpKind.LINEAR, buffers, params)


class RowRecorder(Tape):
    """Implements the embedding, norms, rotary embedding and elementwise operations of `Ops`."""

    def embed(self, table: Matrix, scale: float) -> Buffer:
        out = self._buffer(table.columns)
        return self._add(
            OpKind.EMBED,
            [out],
            lambda: abi.EmbedParams(
                table=self._data(table.data),
                type=table.quant_type,
                rows=table.rows,
                columns=table.columns,
                scale=scale * table.scale,
                out=self._at(out),
            ),
        )

    def rms_norm(self, x: Buffer, weight: FloatArray, epsilon: float, groups: int = 1) -> Buffer:
        return self._norm(x, weight, epsilon, groups, self._buffer(x.width, x.rows))

    def _norm(
        self, x: Buffer, weight: FloatArray, epsilon: float, groups: int, out: Buffer
    ) -> Buffer:
        width = x.width // groups
        per_group = int(groups > 1 and weight.size == x.width)
        return self._add(
            OpKind.RMS_NORM,
            [out, x],
            lambda: abi.RmsNormParams(
                x=self._at(x),
                weight=self._data(weight),
                out=self._at(out),
                width=width,
                groups=groups,
                weight_per_group=per_group,
                epsilon=epsilon,
                rows=out.rows,
            ),
        )

    def layer_norm(self, x: Buffer, weight: FloatArray, bias: FloatArray, epsilon: float) -> Buffer:
        out = self._buffer(x.width, x.rows)
        return self._add(
            OpKind.LAYER_NORM,
            [out, x],
            lambda: abi.LayerNormParams(
                x=self._at(x), weight=self._data(weight), bias=self._data(bias), out=self._at(out),
                width=x.width, epsilon=epsilon, rows=x.rows,
            ),
        )  # fmt: skip

    def scale_by_position(self, x: Buffer, interval: int, rate: float, offset: int) -> Buffer:
        return self._add(
            OpKind.SCALE_BY_POSITION,
            [x],
            lambda: abi.ScaleByPositionParams(
                x=self._at(x), width=x.width, interval=interval, rate=rate, offset=offset
            ),
        )

    def gate_heads(self, gate: Buffer, x: Buffer, activation: HeadGate) -> Buffer:
        return self._add(
            OpKind.GATE_HEADS,
            [x, gate],
            lambda: abi.GateHeadsParams(
                gate=self._at(gate),
                x=self._at(x),
                width=x.width,
                num_gates=gate.width,
                activation=activation,
            ),
        )

    def join(self, first: Buffer, second: Buffer, groups: int = 1) -> Buffer:
        out = self._buffer(first.width + second.width, first.rows)
        widths = (c_int32 * 2)(first.width // groups, second.width // groups)
        return self._add(
            OpKind.JOIN,
            [out, first, second],
            lambda: abi.JoinParams(
                first=self._at(first),
                second=self._at(second),
                out=self._at(out),
                widths=widths,
                groups=groups,
                rows=first.rows,
            ),
        )

    def part(self, x: Buffer, begin: int, width: int) -> Buffer:
        out = self._buffer(width, x.rows)
        return self._add(
            OpKind.PART,
            [out, x],
            lambda: abi.PartParams(
                x=self._at(x),
                out=self._at(out),
                x_width=x.width,
                begin=begin,
                width=width,
                rows=x.rows,
            ),
        )

    def rope_angles(self, table: RopeTable) -> Buffer:
        half = len(table.frequencies)
        out = self._buffer(2 * half)
        sines = self._limits.max_tokens * half * FLOAT_BYTES
        return self._add(
            OpKind.ROPE_ANGLES,
            [out],
            lambda: abi.RopeAnglesParams(
                frequencies=self._data(table.frequencies),
                cosines=self._at(out),
                sines=self._at(out, sines),
                half=half,
                scale=table.scale,
            ),
        )

    def rope(self, x: Buffer, num_heads: int, angles: Buffer, interleaved: bool) -> Buffer:
        half = angles.width // 2
        sines = self._limits.max_tokens * half * FLOAT_BYTES
        return self._add(
            OpKind.ROPE,
            [x, angles],
            lambda: abi.RopeParams(
                x=self._at(x), cosines=self._at(angles), sines=self._at(angles, sines),
                heads=num_heads, head_dim=x.width // num_heads, half=half, interleaved=interleaved,
            ),
        )  # fmt: skip

    def add(self, a: Buffer, b: Buffer, scale: float) -> Buffer:
        return self._add_scaled(a, b, scale)

    def scale(self, x: Buffer, factor: float) -> Buffer:
        return self._add_scaled(None, x, factor)

    def _add_scaled(self, a: Buffer | None, b: Buffer, scale: float) -> Buffer:
        out = self._buffer(b.width, b.rows)
        return self._add(
            OpKind.ADD_SCALED,
            [out, b] if a is None else [out, a, b],
            lambda: abi.AddScaledParams(
                a=self._at(a),
                b=self._at(b),
                out=self._at(out),
                width=b.width,
                scale=scale,
                rows=b.rows,
            ),
        )

    def sigmoid(self, x: Buffer) -> Buffer:
        return self._add(
            OpKind.SIGMOID,
            [x],
            lambda: abi.SigmoidParams(x=self._at(x), width=x.width, rows=x.rows),
        )

    def soft_cap(self, x: Buffer, cap: float) -> Buffer:
        return self._add(
            OpKind.SOFT_CAP,
            [x],
            lambda: abi.SoftCapParams(x=self._at(x), width=x.width, rows=x.rows, cap=cap),
        )

    def select_outputs(self, x: Buffer) -> Buffer:
        out = self._buffer(x.width, Rows.OUTPUTS)
        return self._add(
            OpKind.GATHER,
            [out, x],
            lambda: abi.GatherParams(x=self._at(x), out=self._at(out), width=x.width),
        )
