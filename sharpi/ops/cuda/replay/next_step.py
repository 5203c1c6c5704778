"""NextStep: a decode step that the GPU starts before the host knows the step's input token.

The input is the token that argmax has just chosen on the GPU. So the host can process this token
while the GPU computes the next one. If the step is discarded, its keys and values stay at one
position too many, where the next step overwrites them. A recurrent state is saved before the step,
and restored if the step is discarded.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.recorded import StepShape
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs
from sharpi.ops.cuda.replay.step_outputs import Reply


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
        """Returns True if `sequences` and `shape` are those of this started step.

        `token` is the token id with which the GPU started it.
        """
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
