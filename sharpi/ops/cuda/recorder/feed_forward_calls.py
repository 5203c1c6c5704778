"""Records a feed-forward; its launches depend on the number of tokens and on its experts."""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.expert_slots.slot_memory import offset_of
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.launchers.matvec import MatvecPart
from sharpi.ops.cuda.recorded import Call, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.expert_launches import ExpertLaunches, grouped_sum
from sharpi.ops.cuda.recorder.expert_operands import Parts
from sharpi.ops.cuda.recorder.f16_matmul import F16Matmul, uses_library
from sharpi.ops.cuda.recorder.feed_forward import GROUPED_TOKENS, RecordedFeedForward, make_scratch
from sharpi.ops.cuda.recorder.linear_calls import declare_input
from sharpi.ops.cuda.recorder.slotted_expert_calls import RoutePrediction, SlottedExpertCalls
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.interface import StackedMatrix


def feed_forward(
    recording: Recording,
    expert_weights: GpuExpertWeights,
    x: RecordedTensor,
    ffn: RecordedFeedForward,
    prediction: RoutePrediction | None = None,
    next_prediction: RoutePrediction | None = None,
) -> RecordedTensor:
    """Appends residual + scale * sum of weight * down(act(gate x) * up x): (hidden,).

    `prediction` is the route prediction for this layer, `next_prediction` that for the next one.
    """
    declare_input(recording, x, ffn.gate_and_up)
    others = (ffn.ids, ffn.weights, ffn.residual)
    recording.read_floats(*(value for value in others if value is not None))
    out = recording.value(ffn.expert_weights.down.rows, x.rows)
    is_slotted = ffn.ids is not None and expert_weights.is_slotted(ffn.expert_weights)
    scratch = make_scratch(recording, x, ffn, is_slotted=is_slotted)
    if scratch.f16_matmul is not None or is_slotted:
        recording.read_floats(x)
    launches = ExpertLaunches(recording, x, ffn, out, scratch)
    if is_slotted:
        layer = expert_weights.register_slotted(
            ffn.expert_weights, ffn.activation, x.rows, recording.limits
        )
        if prediction is not None:
            recording.read_all_forms(prediction.ids)
        if next_prediction is not None:
            recording.read_all_forms(*next_prediction.values)
        calls = SlottedExpertCalls(launches, expert_weights, layer, prediction, next_prediction)
        recording.append_experts(layer, calls.calls)
    else:
        matrices = tuple(map(expert_weights.register, (*ffn.gate_and_up, ffn.expert_weights.down)))
        recording.append(_Calls(launches, matrices).calls)
    return out


class _Calls(Struct, frozen=True):
    """The calls of a feed-forward whose experts are all on the GPU."""

    launches: ExpertLaunches
    matrices: tuple[Callable[[], GpuStackedMatrix], ...]

    def calls(self, step: StepShape) -> Iterator[Call]:
        launches = replace(self.launches, step=step)
        tokens = step.rows(launches.x.rows)
        if not tokens:
            return
        f16, parts = launches.scratch.f16_matmul, [get() for get in self.matrices]
        if f16 is not None and uses_library(launches.recording, tokens, step):
            yield from self._dense(parts, tokens, f16)
        elif launches.ids is not None and tokens >= GROUPED_TOKENS:
            yield from grouped_sum(launches, parts, step)
        else:
            yield from launches.by_item(parts, tokens)

    def _dense(self, parts: Parts, tokens: int, f16: F16Matmul) -> Iterator[Call]:
        launches, down = self.launches, self.launches.ffn.expert_weights.down
        yield from f16.source(launches.recording.of(launches.x), tokens, launches.x.width)
        for stacked, part, out in launches.gate_and_up(parts):
            yield from f16.product(_on_gpu(stacked, part, out), tokens)
        yield launches.activate(tokens * launches.ffn.used, 0)
        yield from f16.source(launches.at(launches.scratch.hidden), tokens, down.columns)
        yield from f16.product(_on_gpu(down, parts[-1], launches.values), tokens)
        yield launches.merge(tokens)


def _on_gpu(stacked: StackedMatrix, part: GpuStackedMatrix, out: Span) -> MatvecPart:
    """Returns the product of expert 0's matrix, in a tensor of which all are on the GPU."""
    data = part.referenced[0].part(offset_of(stacked), stacked.expert_bytes)
    factor = 1.0 if stacked.scales is None else float(stacked.scales[0])
    sizes = stacked.rows, stacked.columns
    return MatvecPart(data, part.bias, out, stacked.quant_type, *sizes, factor)
