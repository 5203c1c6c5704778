"""PromptInputs: the inputs of all batches of a prompt, copied to the GPU before any batch runs."""

from collections.abc import Sequence

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.replay.step_inputs import StepInputs


class PromptInputs:
    """The ids, positions and output rows of up to `max_batches` batches.

    With sliding-window layers, they include the frames of these layers' pages, for each batch.
    """

    def __init__(self, device: Device, inputs: StepInputs, max_batches: int) -> None:
        self._device, self._inputs = device, inputs
        self._counts = inputs.counts_of_tokens
        self._num_pages = 0 if inputs.frames is None else inputs.num_pages
        row = sum(self._counts) + self._num_pages
        self._host: IntArray = np.zeros((max_batches, row), np.int32)
        self._all = Span(device.allocate(self._host.nbytes), 0, self._host.nbytes)

    def write(self, batches: Sequence[tuple[IntArray, int, IntArray]], pages: IntArray) -> None:
        """Copies (ids, position, output rows) of all batches to the GPU at once.

        `pages` is the prompt's page table, (pages,).
        """
        tokens, _, _ = self._counts
        for row, (ids, position, outputs) in zip(self._host, batches, strict=False):
            row[: len(ids)] = ids
            row[tokens : tokens + len(ids)] = range(position, position + len(ids))
            row[2 * tokens : 2 * tokens + len(outputs)] = outputs
            if self._inputs.frames is not None:
                frames = row[sum(self._counts) :]
                self._inputs.frames.write(frames, position, position + len(ids), pages)
        used = self._host[: len(batches)]
        self._device.upload(self._all.part(0, used.nbytes), used)

    def select(self, index: int) -> None:
        """Copies the inputs of batch `index` to the memory of `StepInputs`, for the next step."""
        at = index * self._host.shape[1] * self._host.itemsize
        target = self._inputs.of_tokens
        self._device.copy(target, self._all.part(at, target.num_bytes))
        if self._num_pages:
            size = self._num_pages * self._host.itemsize
            table = self._inputs.window_tables.part(0, size)
            self._device.copy(table, self._all.part(at + target.num_bytes, size))
