"""Records norms, rotations, sums, splits and joins for the GPU."""

from collections.abc import Callable, Iterable, Sequence

from sharpi.device.launch import Launch
from sharpi.ops.attention_shape import HeadGate, RopeTable
from sharpi.ops.cuda.launchers import elementwise, rms_norm
from sharpi.ops.cuda.launchers.attention.heads import (
    HeadNorm,
    HeadRope,
    gate_heads,
    rope_angles,
    scale_by_position,
)
from sharpi.ops.cuda.launchers.experts import experts
from sharpi.ops.cuda.recorded import Call, PendingHeads, RecordedTensor, StepShape
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.ops.interface import Activation, FloatArray, Unary


class RowsOnGpu:
    """Implements the operations of `Ops` that compute each row independently of other rows."""

    _recording: Recording
    _inputs: StepInputs

    def rms_norm(
        self, x: RecordedTensor, weight: FloatArray, epsilon: float, groups: int = 1
    ) -> RecordedTensor:
        rec = self._recording
        rec.weights.register(weight)
        per_group = groups > 1 and weight.size == x.width
        if groups > 1 and x.pending is None:
            normed = x.changed()
            normed.pending = PendingHeads(
                norm=lambda: HeadNorm(rec.weights.span(weight), epsilon, per_group),
                num_heads=groups,
            )
            return normed
        rec.read_floats(x)
        out = rec.value(x.width, x.rows, can_quantise=rec.planes > 0)
        rec.append_launch(
            lambda step: rms_norm.rms_norm(
                rec.of(x), rec.weights.span(weight), rec.floats_if_read(out), rec.at(out.quantised),
                tokens=step.rows(x.rows), width=x.width // groups, groups=groups,
                weight_per_group=per_group, epsilon=epsilon, planes=rec.planes,
            )
        )  # fmt: skip
        return out

    def layer_norm(
        self, x: RecordedTensor, weight: FloatArray, bias: FloatArray, epsilon: float
    ) -> RecordedTensor:
        rec = self._recording
        rec.weights.register(weight, bias)
        rec.read_floats(x)
        out = rec.value(x.width, x.rows, can_quantise=rec.planes > 0)
        rec.append_launch(
            lambda step: elementwise.layer_norm(
                rec.of(x), rec.weights.span(weight), rec.weights.span(bias),
                rec.floats_if_read(out), rec.at(out.quantised),
                tokens=step.rows(x.rows), width=x.width, epsilon=epsilon, planes=rec.planes,
            )
        )  # fmt: skip
        return out

    def rope_angles(self, table: RopeTable) -> RecordedTensor:
        rec, half = self._recording, len(table.frequencies)
        rec.weights.register(table.frequencies)
        out = rec.value(2 * half)
        rec.append_launch(
            lambda step: rope_angles(
                rec.weights.span(table.frequencies), self._inputs.positions, rec.of(out),
                tokens=step.tokens, half=half, scale=table.scale,
            )
        )  # fmt: skip
        return out

    def rope(
        self, x: RecordedTensor, num_heads: int, angles: RecordedTensor, interleaved: bool
    ) -> RecordedTensor:
        rec, pending = self._recording, x.pending
        if pending is not None and (pending.rope is not None or pending.num_heads != num_heads):
            rec.read_floats(x)
        rotated = x.changed()
        pending = rotated.pending or PendingHeads(num_heads=num_heads)
        pending.rope = lambda: HeadRope(rec.of(angles), angles.width // 2, interleaved)
        pending.angles = angles
        rotated.pending = pending
        return rotated

    def scale(self, x: RecordedTensor, factor: float) -> RecordedTensor:
        return self.add(None, x, factor)

    def add(self, a: RecordedTensor | None, b: RecordedTensor, scale: float) -> RecordedTensor:
        rec = self._recording
        rec.read_floats(*([b] if a is None else [a, b]))
        out = rec.value(b.width, b.rows)
        rec.append_launch(
            lambda step: elementwise.add_scaled(
                None if a is None else rec.of(a), rec.of(b), rec.of(out),
                count=step.rows(b.rows) * b.width, scale=scale,
            )
        )  # fmt: skip
        return out

    def _in_place(
        self, x: RecordedTensor, make: Callable[[StepShape], Launch], *read: RecordedTensor
    ) -> RecordedTensor:
        """Appends a launch that changes x, and returns the changed value; it also reads `read`."""
        self._recording.read_floats(*read, x)
        self._recording.append_launch(make)
        return x.changed()

    def unary(self, x: RecordedTensor, function: Unary, *parameters: float) -> RecordedTensor:
        def launch(step: StepShape) -> Launch:
            count = step.rows(x.rows) * x.width
            return elementwise.unary(self._recording.of(x), function, *parameters, count=count)

        return self._in_place(x, launch)

    def scale_by_position(
        self, x: RecordedTensor, interval: int, rate: float, offset: int
    ) -> RecordedTensor:
        rec, sizes = self._recording, {"interval": interval, "offset": offset}
        return self._in_place(
            x,
            lambda step: scale_by_position(
                rec.of(x), self._inputs.positions,
                tokens=step.tokens, width=x.width, rate=rate, **sizes,
            ),
        )  # fmt: skip

    def gate_heads(
        self, gate: RecordedTensor, x: RecordedTensor, activation: HeadGate
    ) -> RecordedTensor:
        of = self._recording.of
        return self._in_place(
            x,
            lambda step: gate_heads(
                of(x), of(gate),
                tokens=step.tokens, width=x.width, num_gates=gate.width, activation=activation,
            ),
            gate,
        )  # fmt: skip

    def split(
        self, x: RecordedTensor, widths: Sequence[int], groups: int = 1
    ) -> list[RecordedTensor]:
        outs = [self._recording.value(groups * width, x.rows) for width in widths]
        self._cut(x, outs, widths, groups)
        return outs

    def part(self, x: RecordedTensor, begin: int, width: int) -> RecordedTensor:
        out = self._recording.value(width, x.rows)
        self._cut(x, (None, out, None), (begin, width, x.width - begin - width), 1)
        return out

    def _cut(
        self,
        x: RecordedTensor,
        outs: Sequence[RecordedTensor | None],
        widths: Sequence[int],
        groups: int,
    ) -> None:
        rec = self._recording
        rec.read_floats(x)
        rec.extend_lifetime(x.floats)
        rec.append_launch(
            lambda step: elementwise.split(
                rec.of(x), [None if out is None else rec.of(out) for out in outs], widths,
                runs=groups * step.rows(x.rows),
            )
        )  # fmt: skip

    def join(
        self, first: RecordedTensor, second: RecordedTensor, groups: int = 1
    ) -> RecordedTensor:
        rec = self._recording
        rec.read_floats(first, second)
        out = rec.value(first.width + second.width, first.rows)
        widths = first.width // groups, second.width // groups
        rec.append_launch(
            lambda step: elementwise.join(
                rec.of(first), rec.of(second), rec.of(out),
                widths=widths, runs=groups * step.rows(first.rows),
            )
        )  # fmt: skip
        return out

    def gated(
        self, gate: RecordedTensor, x: RecordedTensor, activation: Activation
    ) -> RecordedTensor:
        rec = self._recording
        rec.read_floats(gate, x)
        out = rec.value(x.width, x.rows, can_quantise=rec.planes > 0)

        def calls(step: StepShape) -> Iterable[Call]:
            targets = ((rec.floats_if_read(out), 0), (rec.at(out.quantised), rec.planes))
            for target, planes in targets:
                if target is not None:
                    yield experts.activate(
                        rec.of(gate), rec.of(x), target, activation=activation,
                        items=step.rows(x.rows), rows=x.width, hidden_planes=planes,
                    )  # fmt: skip

        rec.append(calls)
        return out
