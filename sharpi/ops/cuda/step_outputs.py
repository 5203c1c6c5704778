"""What a step leaves behind for the host: logits, routes and router logits, fetched on demand."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.program import IntArray

_ID_BYTES = 4


class Rows4(NamedTuple):
    """Rows of 4-byte values on the card."""

    span: Span
    width: int


class StepOutputs:
    """`max_ids`: ids of all layers' routes together; they lie in one memory, copied at once."""

    def __init__(self, device: Device, max_ids: int) -> None:
        self._device = device
        self._memory = device.allocate(max_ids * _ID_BYTES)
        self.largest = Span(device.allocate(_ID_BYTES), 0, _ID_BYTES)
        self._num_ids = 0
        self._routes: list[tuple[int, int, int]] = []
        self.router_logits: list[Rows4] = []

    def add_routes(self, num_rows: int, width: int) -> Span:
        """Room for a layer's ids, (rows, used) int32."""
        start, count = self._num_ids, num_rows * width
        self._routes.append((start, num_rows, width))
        self._num_ids += count
        return Span(self._memory, start * _ID_BYTES, count * _ID_BYTES)

    def read_largest(self) -> int:
        """The id that the last step chose, -1 where its logits are not finite."""
        chosen = np.zeros(1, np.int32)
        self._device.download(self.largest, chosen)
        return int(chosen[0])

    def read_routes(self) -> list[IntArray]:
        """Each layer's ids, (rows, used); rows beyond the step's are of earlier steps."""
        ids = np.zeros(self._num_ids, np.int32)
        self._device.download(Span(self._memory, 0, ids.nbytes), ids)
        return [
            ids[start : start + rows * width].reshape(rows, width)
            for start, rows, width in self._routes
        ]

    def read(self, rows: Rows4, count: int) -> npt.NDArray[np.float32]:
        """The first rows of a value."""
        values = np.zeros((count, rows.width), np.float32)
        self._device.download(rows.span.part(0, values.nbytes), values)
        return values
