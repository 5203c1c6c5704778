"""PromptInputs: the inputs of all batches of a prompt, copied to the GPU before the first runs."""

from collections.abc import Sequence

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.replay.step_inputs import StepInputs


class PromptInputs:
    """The ids, positions and output rows of up to `max_turns` batches."""

    def __init__(self, device: Device, inputs: StepInputs, max_turns: int) -> None:
        self._device, self._target = device, inputs.of_tokens
        self._counts = inputs.counts_of_tokens
        self._host: IntArray = np.zeros((max_turns, sum(self._counts)), np.int32)
        self._all = Span(device.allocate(self._host.nbytes), 0, self._host.nbytes)

    def write(self, turns: Sequence[tuple[IntArray, int, IntArray]]) -> None:
        """Copies (ids, position, output rows) of all batches to the GPU at once."""
        tokens, _, _ = self._counts
        for row, (ids, position, outputs) in zip(self._host, turns, strict=False):
            row[: len(ids)] = ids
            row[tokens : tokens + len(ids)] = range(position, position + len(ids))
            row[2 * tokens : 2 * tokens + len(outputs)] = outputs
        used = self._host[: len(turns)]
        self._device.upload(self._all.part(0, used.nbytes), used)

    def select(self, turn: int) -> None:
        """Copies the inputs of one batch to those of the next step."""
        size = self._target.num_bytes
        self._device.copy(self._target, self._all.part(turn * size, size))
