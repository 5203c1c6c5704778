"""GpuProgram: a step recorded for the GPU, with methods to run it and to read its results."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.recorded import Calls, MissMode, RecordedTensor, StepShape
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs, StepInputs
from sharpi.ops.cuda.replay.step_outputs import GpuValues, Reply, Rows4, StepOutputs, StepValues
from sharpi.ops.cuda.replay.step_replay import StepReplay


class NextStep(Struct, frozen=True):
    """A step that was started right after the step with the inputs `before`."""

    before: SequenceInputs
    shape: StepShape
    reply: Reply

    @classmethod
    def after(cls, before: SequenceInputs, shape: StepShape, reply: Reply) -> "NextStep":
        """Returns the step after the inputs `before`, whose page table is copied."""
        return cls(before._replace(pages=before.pages[: _num_pages(before)].copy()), shape, reply)

    def is_for(self, sequences: Sequence[SequenceInputs], shape: StepShape, token: int) -> bool:
        """Returns True if these are the step's, which the GPU started with the id `token`."""
        if shape != self.shape or len(sequences) != 1:
            return False
        sequence, before = sequences[0], self.before
        return (
            int(sequence.ids[0]) == token
            and sequence.position == before.end
            and sequence.state == before.state
            and np.array_equal(sequence.outputs, before.outputs)
            and np.array_equal(sequence.pages[: len(before.pages)], before.pages)
        )


def may_run_ahead(before: SequenceInputs) -> bool:
    """Returns True if the position after these inputs is in the same KV page as their last one.

    Only then may the GPU start the next step, because the sequence may not have the next page yet.
    """
    return before.end % PAGE_POSITIONS > 0


def _num_pages(before: SequenceInputs) -> int:
    """Returns the number of pages up to the position after the inputs."""
    return before.end // PAGE_POSITIONS + 1


_LEAST_POSITIONS = 256


class GpuProgram:
    """A recorded step that runs on given sequences, and has results to read."""

    def __init__(
        self,
        recording: Recording,
        operations: Sequence[Calls],
        inputs: StepInputs,
        outputs: StepOutputs,
        logits: RecordedTensor,
        router_logits: Sequence[RecordedTensor],
        expert_weights: GpuExpertWeights,
        states: GpuStates,
        hidden: RecordedTensor | None = None,
    ) -> None:
        self.recording, self.inputs, self.outputs, self.expert_weights = (
            recording,
            inputs,
            outputs,
            expert_weights,
        )
        self._device, self._limits, self._states = recording.device, recording.limits, states
        self.step_replay = StepReplay(recording, operations, expert_weights)
        self._logits = Rows4(recording.of(logits), logits.width)
        self._result_rows, self._num_results = logits.rows, 0
        self._hidden = None if hidden is None else Rows4(recording.of(hidden), hidden.width)
        self._reply: Reply | None = None  # of the last step run with `largest`
        self._next: NextStep | None = None
        self.was_started_ahead = False  # the last step was started before the host knew its token
        self._router_logits = [Rows4(recording.of(v), v.width) for v in router_logits]

    def run(
        self,
        sequences: Sequence[SequenceInputs],
        incoming: StepValues | None = None,
        *,
        largest: bool = False,
        reads: bool = True,
        runs_ahead: bool = False,
        misses: MissMode = "bus",
        predicts: bool = False,
    ) -> npt.NDArray[np.float32]:
        """Runs a step and returns the requested logits, (outputs, vocabulary).

        A program without the output layer returns the hidden states of all tokens, (tokens,
        hidden). Without `reads` the method returns no rows and does not wait for the step; its
        values are then in `results`.

        If there are several sequences, each must have fewer than `PRODUCT_TOKENS` tokens, and only
        one token if layers have slots. `incoming` (tokens, hidden) is the output of earlier layers
        that another processor computes. With `largest` no logits are copied; the method `largest`
        waits for the step and returns the id of the largest logit. With `runs_ahead` the GPU starts
        the next step with that token before the host knows it; see `NextStep`. `misses` is the miss
        mode. With `predicts`, each layer of a decode step prefetches experts of the next layer.
        """
        started, step = self._next, self._step_shape(sequences)
        predicts = predicts and step.is_decode and step.tokens == step.outputs
        has_drafts = any(each.states_after for each in sequences)
        step = step._replace(
            largest=largest, misses=misses, predicts=predicts, has_drafts=has_drafts
        )
        self.was_started_ahead = started is not None and started.is_for(
            sequences, step, self.largest()
        )
        if started is not None and self.was_started_ahead:
            self._reply, self._next = started.reply, None
        else:
            self.discard_next()
            self._begin(sequences, incoming, step)
        if runs_ahead and may_run_ahead(sequences[0]):
            self._start_next(sequences[0], step)
        if largest or not reads:
            return np.zeros((0, self._logits.width), np.float32)
        return self.read_logits(self._num_results)

    def _begin(
        self,
        sequences: Sequence[SequenceInputs],
        incoming: StepValues | None,
        step: StepShape,
    ) -> None:
        self.inputs.write(sequences)
        if incoming is not None:
            self.inputs.write_incoming(incoming)
        routed, state = self.recording.routed, sequences[0].state
        if routed is None or step.is_decode or step.sequences > 1:
            self.step_replay.replay(step._replace(is_exact=step.sequences > 1))
        else:
            routed.rerun_if_over(
                lambda exactly: self.step_replay.replay(step._replace(is_exact=exactly)), state
            )
        self._num_results = step.rows(self._result_rows)
        self._reply = self.outputs.send_largest() if step.largest else None

    def _start_next(self, before: SequenceInputs, step: StepShape) -> None:
        """Starts the step after `before`, of the same shape, with the token of argmax."""
        self._states.save(before.state)
        if self.expert_weights.slotted is not None:
            self.expert_weights.slotted.tables.words.save()
        after = step._replace(positions=self.step(1, 1, before.end).positions, end=0)
        self.step_replay.replay(after)
        self._next = NextStep.after(before, after, self.outputs.send_largest())

    def discard_next(self) -> None:
        """Discards a step that was started ahead, if any, and restores the state that it changed.

        Call it before anything else reads or writes recurrent states.
        """
        if self._next is not None:
            self._states.restore(self._next.before.state)
            if self.expert_weights.slotted is not None:
                self.expert_weights.slotted.tables.words.restore()
            self._next = None

    @property
    def is_ahead(self) -> bool:
        """True if the GPU has started the next step, before the host knows its input token."""
        return self._next is not None

    @property
    def has_output(self) -> bool:
        """True if the results are logits, rather than hidden states of all tokens."""
        return self._result_rows is Rows.OUTPUTS

    @property
    def results(self) -> GpuValues:
        """The last step's results, in the GPU's memory."""
        span, width = self._logits
        size = self._num_results * width * FLOAT_BYTES
        return GpuValues(self._device, span.part(0, size), width)

    def read_logits(self, count: int) -> npt.NDArray[np.float32]:
        """Returns the first `count` rows of the last step's results."""
        read = self.outputs.read_logits if self.has_output else self.outputs.read
        return read(self._logits, count)

    @property
    def keeps_hidden(self) -> bool:
        """True if the program was recorded with `hidden`, so that `read_hidden` can be called."""
        return self._hidden is not None

    def read_hidden(self, count: int) -> npt.NDArray[np.float32]:
        """Returns the first `count` rows of the last step's hidden states."""
        assert self._hidden is not None
        return self.outputs.read(self._hidden, count)

    def largest(self) -> int:
        """Returns the id of the largest logit of a step run with `largest`; -1 if not finite."""
        assert self._reply is not None
        return self.outputs.receive(self._reply)

    def _step_shape(self, sequences: Sequence[SequenceInputs]) -> StepShape:
        tokens = sum(len(each.ids) for each in sequences)
        outputs = sum(len(each.outputs) for each in sequences)
        if len(sequences) == 1:
            return self.step(tokens, outputs, sequences[0].position)
        bound = self._bound_of(max(each.end for each in sequences))
        return StepShape(tokens, outputs, bound, sequences=len(sequences))

    def step(self, tokens: int, outputs: int, position: int) -> StepShape:
        """Returns the shape of a step of one sequence whose first token is at `position`."""
        end = position + tokens
        return StepShape(tokens, outputs, self._bound_of(end), end if tokens > 1 else 0)

    def _bound_of(self, num_positions: int) -> int:
        """Rounds positions up to a power of two, so that there are few step shapes."""
        bound = _LEAST_POSITIONS
        while bound < num_positions:
            bound *= 2
        return min(bound, self._limits.max_positions)

    def drop_graphs(self) -> None:
        """Drops all graphs, because the addresses in them are no longer valid."""
        self.discard_next()
        self.step_replay.drop_graphs()

    @property
    def routes(self) -> list[IntArray]:
        """The last step's expert ids, (rows, used) for each MoE layer."""
        return self.outputs.read_routes()

    @property
    def router_logits(self) -> list[npt.NDArray[np.float32]]:
        """The last step's logits of each router, (tokens, experts)."""
        return [self.outputs.read(v, self._limits.max_tokens) for v in self._router_logits]
