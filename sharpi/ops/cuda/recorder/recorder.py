"""GpuRecorder: records a model's step for the GPU, while the model's code runs once.

The result is a `GpuProgram`. It makes new launches for each batch of a prefill, and replays a CUDA
graph for each decode step.
"""

from collections.abc import Callable, Iterable, Sequence

from sharpi.device.launch import Span
from sharpi.errors import UnsupportedModelError
from sharpi.ops.attention_shape import AttentionShape, Chosen
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.expert_slots.slot_state import route_time
from sharpi.ops.cuda.gpu_limits import check_type
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.kv_cache import GpuKvCache
from sharpi.ops.cuda.launchers import elementwise
from sharpi.ops.cuda.launchers.experts import route
from sharpi.ops.cuda.recorded import Call, Copy, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.attention_calls import attend
from sharpi.ops.cuda.recorder.feed_forward import RecordedFeedForward
from sharpi.ops.cuda.recorder.feed_forward_calls import feed_forward
from sharpi.ops.cuda.recorder.head_linear_calls import head_linear
from sharpi.ops.cuda.recorder.linear_calls import Part, linear
from sharpi.ops.cuda.recorder.recorder_recurrent import RecurrentOnGpu
from sharpi.ops.cuda.recorder.recorder_rows import RowsOnGpu
from sharpi.ops.cuda.recorder.slotted_expert_calls import (
    RoutePrediction,
    RoutePredictions,
    of_predictions,
)
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.ops.cuda.replay.step_outputs import StepOutputs
from sharpi.ops.interface import (
    Activation,
    ExpertWeights,
    FloatArray,
    Matrix,
    Router,
    StackedMatrix,
)


class GpuRecorder(RowsOnGpu, RecurrentOnGpu):
    """Implements all of `Ops` by recording launches; `finish` returns the program."""

    def __init__(
        self,
        recording: Recording,
        expert_weights: GpuExpertWeights,
        cache: GpuKvCache,
        states: GpuStates,
        inputs: StepInputs,
        outputs: StepOutputs,
        *,
        keeps_router_logits: bool = False,
    ) -> None:
        self._recording, self._expert_weights, self._cache = recording, expert_weights, cache
        self._states = states
        self._inputs, self._outputs = inputs, outputs
        self._keeps_router_logits = keeps_router_logits
        self._router_logits: list[RecordedTensor] = []
        self._route_predictions = RoutePredictions()

    def incoming(self, width: int) -> RecordedTensor:
        """Returns the value for a step's input from another processor, with rows of (width,).

        It holds the hidden states of the layers before those that are recorded here.
        """
        rec, source = self._recording, self._inputs.incoming
        if self._expert_weights.slotted is None:
            return RecordedTensor(width, Rows.TOKENS, None, source=source)
        out = rec.value(width)  # a copy, because other tokens may come in before it is read

        def calls(step: StepShape) -> Iterable[Call]:
            size = step.tokens * width * FLOAT_BYTES
            yield Copy(rec.of(out).part(0, size), source.part(0, size))

        rec.append(calls)
        return out

    def embed(self, table: Matrix, scale: float) -> RecordedTensor:
        rec = self._recording
        check_type(table.quant_type)
        rec.weights.register(table.data)
        out = rec.value(table.columns)
        rec.append_launch(
            lambda step: elementwise.embed(
                rec.weights.span(table.data), self._inputs.ids, rec.of(out),
                quant_type=table.quant_type, tokens=step.tokens, columns=table.columns,
                scale=scale * table.scale,
            )
        )  # fmt: skip
        return out

    def linear(self, x: RecordedTensor, matrices: Sequence[Matrix]) -> list[RecordedTensor]:
        outs = [self._recording.value(m.rows, x.rows) for m in matrices]
        linear(self._recording, x, [Part(m, out) for m, out in zip(matrices, outs, strict=True)])
        return outs

    def linear_add(
        self, x: RecordedTensor, matrix: Matrix, residual: RecordedTensor, scale: float
    ) -> RecordedTensor:
        out = self._recording.value(matrix.rows, x.rows)
        linear(self._recording, x, [Part(matrix, out)], residual, scale)
        return out

    def attention(
        self,
        q: RecordedTensor,
        k: RecordedTensor | None,
        v: RecordedTensor | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
        chosen: Chosen[RecordedTensor] | None = None,
    ) -> RecordedTensor:
        return attend(self._recording, self._cache, self._inputs, (q, k, v), shape, sinks)

    def choose(
        self,
        keys: Callable[[], RecordedTensor],
        queries: Callable[[], tuple[RecordedTensor, RecordedTensor | None]],
        shape: AttentionShape,
    ) -> None:
        assert shape.index is not None
        most = shape.index.num_positions
        if self._inputs.num_pages > -(-most // PAGE_POSITIONS):
            raise UnsupportedModelError(
                f"there are no CUDA kernels for sparse attention beyond {most} positions yet: give"
                f" -c {most}, or let the CPU run the model"
            )

    def route(
        self, logits: RecordedTensor, router: Router
    ) -> tuple[RecordedTensor, RecordedTensor]:
        rec = self._recording
        if self._keeps_router_logits:
            rec.keep(logits)
            self._router_logits.append(logits)
        routes = self._outputs.add_routes(logits.rows, rec.capacity(logits.rows), router.num_used)
        ids = RecordedTensor(
            router.num_used, logits.rows, None, source=routes.of_step, routes=routes
        )
        weights = rec.value(router.num_used, logits.rows)
        self._choose(logits, router, ids, weights)
        return ids, weights

    def _choose(
        self, logits: RecordedTensor, router: Router, ids: RecordedTensor, weights: RecordedTensor
    ) -> None:
        rec = self._recording
        rec.read_floats(logits)
        rec.weights.register(router.bias)
        rec.append_launch(
            lambda step: route.route(
                rec.of(logits), rec.weights.optional(router.bias),
                rec.of(ids) if ids.routes is None else ids.routes.span(step), rec.of(weights),
                router, tokens=step.rows(logits.rows),
                route_time=self._route_time(router, ids, step),
            )
        )  # fmt: skip

    def _route_time(self, router: Router, ids: RecordedTensor, step: StepShape) -> Span | None:
        """Returns the int64 for the time of the route; None if no experts are prefetched."""
        slotted, is_own = self._expert_weights.slotted, ids.routes is not None
        if slotted is None or not (
            is_own and step.predicts and slotted.fetches_early(router.layer)
        ):
            return None
        return route_time(slotted.tables.memory[router.layer].state.words)

    def predict_routes(
        self, x: RecordedTensor, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        slotted = self._expert_weights.slotted
        is_for_host = self._expert_weights.sends_predictions_to_host(router.layer)
        if slotted is None or not (is_for_host or slotted.fetches_early(router.layer)):
            return
        rec = self._recording
        rec.read_floats(x)
        with rec.record_separately() as operations:
            h = self.rms_norm(of_predictions(x), norm, epsilon)
            (logits,) = self.linear(h, [matrix])
            ids, weights = (rec.value(router.num_used, Rows.PREDICTED) for _ in range(2))
            self._choose(logits, router, ids, weights)
        values = (x, h, logits, ids, weights)
        self._route_predictions.add(
            RoutePrediction(router.layer, ids, tuple(operations), values, is_for_host=is_for_host)
        )

    def experts(
        self,
        x: RecordedTensor,
        expert_weights: ExpertWeights,
        activation: Activation,
        route: tuple[RecordedTensor | None, RecordedTensor] | None,
        residual: RecordedTensor | None,
        scale: float = 1.0,
    ) -> RecordedTensor:
        ids, weights = route or (None, None)
        ffn = RecordedFeedForward(expert_weights, activation, ids, weights, residual, scale)
        if ids is None:
            return feed_forward(self._recording, self._expert_weights, x, ffn)
        seen = self._route_predictions.take(
            is_slotted=self._expert_weights.is_slotted(expert_weights)
        )
        return feed_forward(self._recording, self._expert_weights, x, ffn, *seen)

    def head_linear(self, x: RecordedTensor, stacked: StackedMatrix) -> RecordedTensor:
        return head_linear(self._recording, self._expert_weights, x, stacked)

    def select_outputs(self, x: RecordedTensor) -> RecordedTensor:
        rec = self._recording
        rec.read_floats(x)
        out = rec.value(x.width, Rows.OUTPUTS)
        rec.append_launch(
            lambda step: elementwise.gather(
                rec.of(x), self._inputs.output_rows, rec.of(out),
                outputs=step.outputs, width=x.width,
            )
        )  # fmt: skip
        return out

    def finish(self, logits: RecordedTensor, hidden: RecordedTensor | None = None) -> GpuProgram:
        """Allocates buffers, loads weights, makes the program; `hidden` can be read after steps."""
        rec = self._recording
        rec.keep(logits)
        if hidden is not None:
            rec.keep(hidden)

        def calls(step: StepShape) -> Iterable[Call]:
            if step.largest:
                yield elementwise.argmax(
                    rec.of(logits), self._outputs.largest,
                    rows=1, width=logits.width, next_inputs=self._inputs.first,
                )  # fmt: skip

        rec.append(calls)
        return GpuProgram(
            rec, rec.finish(), self._inputs, self._outputs, logits, self._router_logits,
            self._expert_weights, self._states, hidden,
        )  # fmt: skip
