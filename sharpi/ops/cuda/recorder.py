"""Records a model's step for the card: the model runs once over this object.

What comes out is a `CardProgram`: launches that are made anew for each batch of a prefill, and
replayed as one CUDA graph for each token of a decode.
"""

from collections.abc import Iterable, Sequence

from sharpi.ops.abi import Rows
from sharpi.ops.cuda import argmax, elementwise, embed, rms_norm, rope_angles, route
from sharpi.ops.cuda.attention_calls import attend
from sharpi.ops.cuda.card_banks import CardBanks
from sharpi.ops.cuda.feed_forward import FeedForward
from sharpi.ops.cuda.feed_forward_calls import feed_forward
from sharpi.ops.cuda.heads import HeadNorm, HeadRope
from sharpi.ops.cuda.kv_cache import CardKvCache
from sharpi.ops.cuda.linear_calls import Part, linear
from sharpi.ops.cuda.program import CardProgram
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.step_inputs import StepInputs
from sharpi.ops.cuda.step_outputs import StepOutputs
from sharpi.ops.cuda.unsupported import UnsupportedOnCard, check_type, refuse
from sharpi.ops.cuda.values import Call, Extent, PendingHeads, Value
from sharpi.ops.interface import (
    Activation,
    AttentionShape,
    ExpertBanks,
    FloatArray,
    Matrix,
    RopeTable,
    Router,
    Scoring,
)


class CardRecorder(UnsupportedOnCard):
    """Implements `Ops[Value]`; call `finish` with the logits to get the program."""

    def __init__(
        self,
        recording: Recording,
        banks: CardBanks,
        cache: CardKvCache,
        inputs: StepInputs,
        outputs: StepOutputs,
        *,
        keeps_router_logits: bool = False,
    ) -> None:
        self._recording, self._banks, self._cache = recording, banks, cache
        self._inputs, self._outputs = inputs, outputs
        self._keeps_router_logits = keeps_router_logits
        self._router_logits: list[Value] = []

    def incoming(self, width: int) -> Value:
        """What another processor computed before this part of the model, (width,)."""
        return Value(width, Rows.TOKENS, None, source=self._inputs.incoming)

    def embed(self, table: Matrix, scale: float) -> Value:
        rec, inputs = self._recording, self._inputs
        check_type(table.quant_type)
        rec.weights.want(table.data)
        out = rec.value(table.columns)

        def calls(extent: Extent) -> Iterable[Call]:
            yield embed.embed(
                rec.weights.span(table.data),
                inputs.ids,
                rec.of(out),
                quant_type=table.quant_type,
                tokens=extent.tokens,
                columns=table.columns,
                scale=scale,
            )

        rec.append(calls)
        return out

    def rms_norm(self, x: Value, weight: FloatArray, epsilon: float, groups: int = 1) -> Value:
        rec = self._recording
        rec.weights.want(weight)
        per_group = groups > 1 and weight.size == x.width
        if groups > 1 and x.pending is None:
            x.pending = PendingHeads(
                norm=lambda: HeadNorm(rec.weights.span(weight), epsilon, per_group),
                num_heads=groups,
            )
            return x
        rec.floats(x)
        out = rec.value(x.width, x.rows, rounds=rec.planes > 0)

        def calls(extent: Extent) -> Iterable[Call]:
            yield rms_norm.rms_norm(
                rec.of(x),
                rec.weights.span(weight),
                rec.wanted(out),
                rec.at(out.rounded),
                tokens=extent.rows(x.rows),
                width=x.width // groups,
                groups=groups,
                weight_per_group=per_group,
                epsilon=epsilon,
                planes=rec.planes,
            )

        rec.append(calls)
        return out

    def linear(self, x: Value, matrices: Sequence[Matrix]) -> list[Value]:
        outs = [self._recording.value(m.rows, x.rows) for m in matrices]
        linear(self._recording, x, [Part(m, out) for m, out in zip(matrices, outs, strict=True)])
        return outs

    def linear_add(self, x: Value, matrix: Matrix, residual: Value, scale: float) -> Value:
        out = self._recording.value(matrix.rows, x.rows)
        linear(self._recording, x, [Part(matrix, out)], residual, scale)
        return out

    def rope_angles(self, table: RopeTable) -> Value:
        rec, half = self._recording, len(table.frequencies)
        rec.weights.want(table.frequencies)
        out = rec.value(2 * half)

        def calls(extent: Extent) -> Iterable[Call]:
            yield rope_angles.rope_angles(
                rec.weights.span(table.frequencies),
                self._inputs.positions,
                rec.of(out),
                tokens=extent.tokens,
                half=half,
                scale=table.scale,
            )

        rec.append(calls)
        return out

    def rope(self, x: Value, num_heads: int, angles: Value, interleaved: bool) -> Value:
        rec, pending = self._recording, x.pending
        if pending is not None and (pending.rope is not None or pending.num_heads != num_heads):
            rec.floats(x)
            pending = None
        pending = pending or PendingHeads(num_heads=num_heads)
        pending.rope = lambda: HeadRope(rec.of(angles), angles.width // 2, interleaved)
        pending.angles = angles
        x.pending = pending
        return x

    def attention(
        self,
        q: Value,
        k: Value | None,
        v: Value | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
    ) -> Value:
        if shape.is_chunked:
            refuse("attention in chunks")
        return attend(self._recording, self._cache, self._inputs, (q, k, v), shape, sinks)

    def route(self, logits: Value, router: Router) -> tuple[Value, Value]:
        rec = self._recording
        if router.scoring is Scoring.SPARSE_MIXER:
            refuse("the sparse mixer's choice of experts")
        rec.floats(logits)
        if router.bias is not None:
            rec.weights.want(router.bias)
        if self._keeps_router_logits:
            rec.keep(logits)
            self._router_logits.append(logits)
        room = self._outputs.add_routes(rec.capacity(logits.rows), router.num_used)
        ids = Value(router.num_used, logits.rows, None, source=room)
        weights = rec.value(router.num_used, logits.rows)

        def calls(extent: Extent) -> Iterable[Call]:
            yield route.route(
                rec.of(logits),
                rec.weights.optional(router.bias),
                rec.of(ids),
                rec.of(weights),
                tokens=extent.rows(logits.rows),
                experts=router.num_experts,
                used=router.num_used,
                scoring=router.scoring,
                normalise=router.normalise,
                scale=router.scale,
                num_groups=router.num_groups,
                groups_used=router.groups_used,
            )

        rec.append(calls)
        return ids, weights

    def foresee(
        self, x: Value, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        """No expert is on its way to the card: there is nothing to guess for."""

    def experts(
        self,
        x: Value,
        banks: ExpertBanks,
        activation: Activation,
        route: tuple[Value, Value] | None,
        residual: Value | None,
        scale: float = 1.0,
    ) -> Value:
        ids, weights = route or (None, None)
        what = FeedForward(banks, activation, ids, weights, residual, scale)
        return feed_forward(self._recording, self._banks, x, what)

    def gated_expert(
        self, x: Value, banks: ExpertBanks, activation: Activation, weight: Value, residual: Value
    ) -> Value:
        what = FeedForward(banks, activation, None, weight, residual, 1.0)
        return feed_forward(self._recording, self._banks, x, what)

    def add(self, a: Value, b: Value, scale: float) -> Value:
        return self._add_scaled(a, b, scale)

    def scale(self, x: Value, factor: float) -> Value:
        return self._add_scaled(None, x, factor)

    def _add_scaled(self, a: Value | None, b: Value, scale: float) -> Value:
        rec = self._recording
        for value in (a, b):
            if value is not None:
                rec.floats(value)
        out = rec.value(b.width, b.rows)

        def calls(extent: Extent) -> Iterable[Call]:
            yield elementwise.add_scaled(
                None if a is None else rec.of(a),
                rec.of(b),
                rec.of(out),
                count=extent.rows(b.rows) * b.width,
                scale=scale,
            )

        rec.append(calls)
        return out

    def sigmoid(self, x: Value) -> Value:
        rec = self._recording
        rec.floats(x)
        rec.append(
            lambda extent: [elementwise.sigmoid(rec.of(x), count=extent.rows(x.rows) * x.width)]
        )
        return x

    def soft_cap(self, x: Value, cap: float) -> Value:
        rec = self._recording
        rec.floats(x)
        rec.append(
            lambda extent: [
                elementwise.soft_cap(rec.of(x), count=extent.rows(x.rows) * x.width, cap=cap)
            ]
        )
        return x

    def select_outputs(self, x: Value) -> Value:
        rec = self._recording
        rec.floats(x)
        out = rec.value(x.width, Rows.OUTPUTS)

        def calls(extent: Extent) -> Iterable[Call]:
            if extent.outputs:
                yield elementwise.gather(
                    rec.of(x),
                    self._inputs.output_rows,
                    rec.of(out),
                    outputs=extent.outputs,
                    width=x.width,
                )

        rec.append(calls)
        return out

    def finish(self, logits: Value) -> CardProgram:
        """Places the buffers, copies the weights and makes the program."""
        rec = self._recording
        rec.keep(logits)

        def calls(extent: Extent) -> Iterable[Call]:
            if extent.largest:
                yield argmax.argmax(
                    rec.of(logits), self._outputs.largest, rows=1, width=logits.width
                )

        rec.append(calls)
        operations = self._recording.finish()
        return CardProgram(
            self._recording,
            operations,
            self._inputs,
            self._outputs,
            logits,
            self._router_logits,
        )
