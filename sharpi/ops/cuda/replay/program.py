"""A step recorded for the GPU, ready to run: batches as launches, decoding as CUDA graphs."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Mark, Work
from sharpi.device.launch import Launch
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.recorded import (
    Attend,
    AwaitWord,
    Call,
    Calls,
    Copy,
    MissMode,
    RecordedTensor,
    SideStream,
    StepShape,
    WaitFor,
    WriteWord,
)
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs, StepInputs
from sharpi.ops.cuda.replay.step_outputs import Rows4, StepOutputs

MAX_GRAPHS = 32  # that a program keeps
_LEAST_POSITIONS = 256


class GpuProgram:
    """Calls as functions of the step's sizes; `run` makes them, or replays those of before.

    A graph, of one token of each of some sequences, is captured at the second step of its sizes:
    the first has loaded the kernels.
    """

    def __init__(
        self,
        recording: Recording,
        operations: Sequence[Calls],
        inputs: StepInputs,
        outputs: StepOutputs,
        logits: RecordedTensor,
        router_logits: Sequence[RecordedTensor],
        expert_weights: GpuExpertWeights,
    ) -> None:
        self.recording, self.inputs, self.outputs, self.expert_weights = (
            recording,
            inputs,
            outputs,
            expert_weights,
        )
        self._device, self._limits = recording.device, recording.limits
        self._operations = operations
        self._logits = Rows4(recording.of(logits), logits.width)
        self._router_logits = [Rows4(recording.of(v), v.width) for v in router_logits]
        self._graphs: OrderedDict[StepShape, tuple[Work, tuple[int, ...]]] = OrderedDict()
        self._seen: set[StepShape] = set()
        self._marks: dict[Hashable, Mark] = {}

    def run(
        self,
        sequences: Sequence[SequenceInputs],
        incoming: npt.NDArray[np.float32] | None = None,
        *,
        largest: bool = False,
        misses: MissMode = "stream",
        predicts: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Logits (outputs, vocabulary) of the sequences' wanted rows, one copy to the host.

        Several have fewer tokens each than `PRODUCT_TOKENS`, and one where layers are partial.
        `incoming` (tokens, hidden): what the layers before these left, where there are some. With
        `largest` none are copied, see the method of that name. `misses`: what is done about experts
        that the GPU has not; with `predicts` a token's layers fetch some for the next one.
        """
        self.inputs.write(sequences)
        if incoming is not None:
            self.inputs.write_incoming(incoming)
        step = self._step_shape(sequences)
        predicts = predicts and step.tokens == step.outputs == 1
        step = step._replace(largest=largest, misses=misses, predicts=predicts)
        routed, state = self.recording.routed, sequences[0].state
        if routed is None or step.is_decode or step.sequences > 1:
            self.replay(step._replace(is_exact=step.sequences > 1))
        else:
            routed.guard(lambda exactly: self.replay(step._replace(is_exact=exactly)), state)
        return self.read_logits(0 if largest else step.outputs)

    def read_logits(self, count: int) -> npt.NDArray[np.float32]:
        """Those of the first so many outputs of the last step."""
        return self.outputs.read(self._logits, count)

    def largest(self) -> int:
        """The id of the largest logit of a step that was to find it; -1 if that is not finite."""
        return self.outputs.read_largest()

    def _step_shape(self, sequences: Sequence[SequenceInputs]) -> StepShape:
        tokens = sum(len(each.ids) for each in sequences)
        outputs = sum(len(each.outputs) for each in sequences)
        if len(sequences) == 1:
            return self.step(tokens, outputs, sequences[0].position)
        bound = self._bound_of(max(each.end for each in sequences))
        return StepShape(tokens, outputs, bound, sequences=len(sequences))

    def step(self, tokens: int, outputs: int, position: int) -> StepShape:
        """Sizes of one sequence's step."""
        end = position + tokens
        return StepShape(tokens, outputs, self._bound_of(end), end if tokens > 1 else 0)

    def _bound_of(self, num_positions: int) -> int:
        """So few different ones that graphs are used again."""
        bound = _LEAST_POSITIONS
        while bound < num_positions:
            bound *= 2
        return min(bound, self._limits.max_positions)

    def replay(self, step: StepShape) -> None:
        """Starts the step's work, and does the host's part of it."""
        if not step.is_decode and step.sequences == 1:
            self.expert_weights.begin(step)
        if step in self._graphs:
            self._graphs.move_to_end(step)
            self._start(*self._graphs[step])
            return
        calls = self.calls(step)
        work, requests = [self._bound(call) for call in calls], _requests(calls)
        if step.is_decode and step in self._seen:
            self._keep(step, self._device.record(work), requests)
            self._start(*self._graphs[step])
            return
        if step.is_decode:
            self._seen.add(step)
        self._start(lambda: _do_all(work), requests)

    def _keep(self, step: StepShape, graph: Work, requests: tuple[int, ...]) -> None:
        """In place of the one that was not needed for longest, where there are many."""
        while len(self._graphs) >= MAX_GRAPHS:
            self._graphs.popitem(last=False)
        self._graphs[step] = graph, requests

    def _start(self, work: Work, requests: tuple[int, ...]) -> None:
        """`requests`: the layers that ask the host for experts on the way, in order."""
        if not requests:
            work()
            return
        host = self.expert_weights.host.experts
        host.begin(requests)
        work()
        host.serve_rest()

    def forget_graphs(self) -> None:
        """What was captured knows addresses that are no longer right."""
        self._graphs.clear()
        self._seen.clear()

    def start(self, operations: Sequence[Calls], step: StepShape) -> None:
        """Starts some of the operations, once."""
        calls = _calls(operations, step)
        work = [self._bound(call) for call in calls]
        self._start(lambda: _do_all(work), _requests(calls))

    def calls(self, step: StepShape) -> list[Call]:
        """What a step of these sizes starts, in order."""
        return _calls(self._operations, step)

    def num_calls(self, tokens: int, outputs: int, position: int) -> int:
        """How many a step of these sizes starts."""
        return len(self.calls(self.step(tokens, outputs, position)))

    def _bound(self, call: Call) -> Work:
        device = self._device
        match call:
            case Launch():
                return partial(device.launch, call)
            case Attend():
                return partial(device.attend, *call)
            case Copy():
                return partial(device.copy, *call)
            case WriteWord():
                return partial(device.write_word, *call)
            case AwaitWord():
                return partial(device.await_word, call.word, call.value, call.meanwhile)
            case SideStream():
                return partial(
                    self._on_side_stream, call.key, [self._bound(each) for each in call.calls]
                )
            case WaitFor():
                return partial(self._wait_for, call.key)
        return partial(device.matmul, *call)

    def _on_side_stream(self, key: Hashable, work: Sequence[Work]) -> None:
        self._marks[key] = self._device.on_side_stream(work)

    def _wait_for(self, key: Hashable) -> None:
        self._device.after(self._marks[key])

    @property
    def routes(self) -> list[IntArray]:
        """The last step's expert ids, (rows, used) for each MoE layer."""
        return self.outputs.read_routes()

    @property
    def router_logits(self) -> list[npt.NDArray[np.float32]]:
        """The last step's logits of each router, (tokens, experts)."""
        return [self.outputs.read(v, self._limits.max_tokens) for v in self._router_logits]


def _calls(operations: Sequence[Calls], step: StepShape) -> list[Call]:
    """Without launches that have nothing to do."""
    calls = (call for operation in operations for call in operation(step))
    return [call for call in calls if not isinstance(call, Launch) or all(call.grid)]


def _do_all(work: Sequence[Work]) -> None:
    for each in work:
        each()


def _requests(calls: Sequence[Call]) -> tuple[int, ...]:
    """The layers for which the host is waited, as often as it is."""
    return tuple(call.layer for call in calls if isinstance(call, AwaitWord))
