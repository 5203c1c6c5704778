"""What changes from one step to the next: read by the kernels, written before each replay."""

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.program import IntArray

_INT_BYTES, _FLOAT_BYTES = 4, 4


class StepInputs:
    """Ids, positions, output rows, page table and which state of recurrent layers, copied at once.

    And values from elsewhere. `of_tokens`: the first three, so many of each.
    """

    def __init__(
        self, device: Device, max_tokens: int, max_outputs: int, num_pages: int, hidden_size: int
    ) -> None:
        self._device = device
        counts = (max_tokens, max_tokens, max_outputs, num_pages, 1)
        ends = np.cumsum(counts)
        self.counts_of_tokens = counts[:3]
        self._host: IntArray = np.zeros(int(ends[-1]), np.int32)
        self._views = np.split(self._host, ends[:-1])
        memory = device.allocate(self._host.nbytes)
        self._all = Span(memory, 0, self._host.nbytes)
        starts = [0, *ends[:-1].tolist()]
        self.ids, self.positions, self.output_rows, self.page_table, self.state = (
            self._all.part(start * _INT_BYTES, count * _INT_BYTES)
            for start, count in zip(starts, counts, strict=True)
        )
        self.of_tokens = self._all.part(0, sum(counts[:3]) * _INT_BYTES)
        size = max_tokens * hidden_size * _FLOAT_BYTES
        self.incoming = Span(device.allocate(size), 0, size)

    def write(
        self, ids: IntArray, position: int, outputs: IntArray, pages: IntArray, state: int
    ) -> None:
        """The next step: `ids` at positions from `position` on."""
        host_ids, positions, rows, table, states = self._views
        host_ids[: len(ids)] = ids
        positions[: len(ids)] = range(position, position + len(ids))
        rows[: len(outputs)] = outputs
        table[: len(pages)] = pages
        states[0] = state
        self._device.upload(self._all, self._host)

    def write_incoming(self, values: npt.NDArray[np.float32]) -> None:
        """What another processor computed, (tokens, hidden)."""
        self._device.upload(self.incoming.part(0, values.nbytes), values)
