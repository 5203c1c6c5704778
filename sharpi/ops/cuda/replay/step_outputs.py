"""StepOutputs: the outputs of a step on the GPU (logits and routes), and methods that read them."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.device.device import Device, Event
from sharpi.device.launch import Memory, Span
from sharpi.errors import DeviceError
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.recorded import Routes

_ID_BYTES = 4
_REPLIES = 2


MappedArray = tuple[Memory, npt.NDArray[np.uint8]]


class Reply(NamedTuple):
    """The id of a step's largest logit, on its way to the host."""

    chosen: IntArray  # (1,), -1 if the logit is not finite
    event: Event  # the end of the copy; None if it has ended


class Rows4(NamedTuple):
    """Rows of 4-byte values on the GPU."""

    span: Span
    width: int


class StepOutputs:
    """The outputs of a step; the routes of all layers, up to `max_ids` ids, are copied at once."""

    def __init__(self, device: Device, max_ids: int) -> None:
        self._device = device
        self._memory = device.allocate(max_ids * _ID_BYTES)
        self.largest = Span(device.allocate(_ID_BYTES), 0, _ID_BYTES)
        self._logits: MappedArray | None = None
        self._reply_index = 0
        self._num_ids = 0
        self._routes: list[Routes] = []
        self._of_prompt = Span(self._memory, 0, 0)

    def add_routes(self, rows: Rows, num_rows: int, width: int) -> Routes:
        """Reserves memory for the expert ids of a layer, (num_rows, width) int32; returns it."""
        start, count = self._num_ids, num_rows * width
        span = Span(self._memory, start * _ID_BYTES, count * _ID_BYTES)
        self._routes.append(Routes(rows, width, span))
        self._num_ids += count
        return self._routes[-1]

    def allocate_prompt_routes(self, num_tokens: int) -> None:
        """Allocates memory for the expert ids of all layers, for prompts of `num_tokens` tokens."""
        row_bytes = [each.width * _ID_BYTES for each in self._routes]
        size = num_tokens * sum(row_bytes)
        self._of_prompt = Span(self._device.allocate(size), 0, size)
        for i, each in enumerate(self._routes):
            start = num_tokens * sum(row_bytes[:i])
            each.of_prompt = self._of_prompt.part(start, num_tokens * row_bytes[i])

    def send_largest(self) -> Reply:
        """Starts to copy the id of the last step's largest logit to the host.

        At most two such copies may be in progress. If the driver refuses page-locked memory, the
        method waits for the copy.
        """
        if self._replies is None:
            chosen = np.zeros(1, np.int32)
            self._device.download(self.largest, chosen)
            return Reply(chosen, None)
        memory, host = self._replies
        self._reply_index = (self._reply_index + 1) % _REPLIES
        word = slice(4 * self._reply_index, 4 * self._reply_index + 4)
        self._device.copy(Span(memory, word.start, _ID_BYTES), self.largest)
        return Reply(host[word].view(np.int32), self._device.record_event())

    @cached_property
    def _replies(self) -> MappedArray | None:
        return self._mapped(_REPLIES * _ID_BYTES)

    def _mapped(self, num_bytes: int) -> MappedArray | None:
        """Allocates page-locked memory, which the GPU copies to directly; None if refused."""
        try:
            return self._device.mapped(num_bytes)
        except DeviceError:
            return None

    def receive(self, reply: Reply) -> int:
        """Waits for a reply, and returns its token id; -1 if the largest logit is not finite."""
        if reply.event is not None:
            self._device.wait(reply.event)
        return int(reply.chosen[0])

    def read_routes(self) -> list[IntArray]:
        """Returns the expert ids of each MoE layer, (max rows, used), of the last step.

        Rows beyond those of the last step are from earlier steps.
        """
        ids = np.zeros(self._num_ids, np.int32)
        self._device.download(Span(self._memory, 0, ids.nbytes), ids)
        return [_rows_of(ids, each.of_step, each.width) for each in self._routes]

    def read_prompt_routes(self, num_tokens: int) -> list[IntArray]:
        """Returns the expert ids of each MoE layer, (num_tokens, used), of the last prompt.

        The prompt must have been run layer by layer.
        """
        ids = np.zeros(self._of_prompt.num_bytes // _ID_BYTES, np.int32)
        self._device.download(self._of_prompt, ids)
        return [
            _rows_of(ids, each.of_prompt, each.width)[:num_tokens]
            for each in self._routes
            if each.of_prompt is not None
        ]

    def read_logits(self, rows: Rows4, count: int) -> npt.NDArray[np.float32]:
        """Returns the first `count` rows of a value, which pass through page-locked memory."""
        num_bytes = count * rows.width * _ID_BYTES
        if self._logits is None or self._logits[0].num_bytes < num_bytes:
            self._logits = self._mapped(num_bytes)
        if self._logits is None:
            return self.read(rows, count)
        values = self._logits[1][:num_bytes].view(np.float32).reshape(count, rows.width)
        self._device.download(rows.span.part(0, num_bytes), values)
        return values.copy()

    def read(self, rows: Rows4, count: int) -> npt.NDArray[np.float32]:
        """Returns the first `count` rows of a value."""
        values = np.zeros((count, rows.width), np.float32)
        self._device.download(rows.span.part(0, values.nbytes), values)
        return values


def _rows_of(ids: IntArray, part: Span, width: int) -> IntArray:
    """Returns the ids of one layer from those of all layers."""
    start, count = part.offset // _ID_BYTES, part.num_bytes // _ID_BYTES
    return ids[start : start + count].reshape(-1, width)


_FLOAT_BYTES = 4


class GpuValues(Struct, frozen=True):
    """Rows of floats (rows, width) in the memory of a GPU, which stay valid until its next step."""

    device: Device
    span: Span
    width: int

    def send(self, receiver: Device, target: Span) -> None:
        """Copies the values to another GPU once they are computed; neither GPU waits for the host.

        The driver copies directly if the GPUs reach each other, and otherwise through RAM.
        """
        receiver.after(self.device.on_side_stream(()))
        receiver.copy(target.part(0, self.span.num_bytes), self.span)
        self.device.after(receiver.on_side_stream(()))

    def on_host(self) -> npt.NDArray[np.float32]:
        """Copies the values to the host, and waits for the end of the copy."""
        values = np.zeros((self.span.num_bytes // (_FLOAT_BYTES * self.width), self.width), "<f4")
        self.device.download(self.span, values)
        return values


StepValues = npt.NDArray[np.float32] | GpuValues


def on_host(values: Any) -> npt.NDArray[np.float32]:
    """Returns values as an array of the host: downloads `GpuValues`, and passes arrays through."""
    if isinstance(values, GpuValues):
        return values.on_host()
    assert isinstance(values, np.ndarray)
    return values
