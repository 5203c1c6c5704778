"""ExpertStream: copies missed experts for a batch to two GPU buffers, alternately.

While kernels compute with the experts in one buffer, the next experts are copied to the other.
Resident experts are read from their slots, which do not change while a batch computes the layer. If
several batches use a chunk one after the other, its buffer is reused only after the last of them.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.host_expert_copies import HostExpertCopies
from sharpi.ops.cuda.launchers import waits
from sharpi.ops.cuda.launchers.waits import Wait
from sharpi.ops.cuda.recorded import Call, Copy, SideStream, WaitFor

_NUM_BUFFERS = 2

Addresses = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int32]  # the slot of each expert (experts,), -1 for none


class Chunk(Struct, frozen=True):
    """Experts of a layer with adjacent ids that are computed together.

    Experts of the chunk that have no slot are copied to one buffer.
    """

    number: int  # its index among all chunks of the batch
    layer: int
    first: int
    count: int
    missing: tuple[int, ...]  # the experts without a slot, which are copied

    @property
    def buffer(self) -> int:
        """The index of the buffer that the chunk is copied to."""
        return self.number % _NUM_BUFFERS


class ExpertStream:
    """Two buffers on the GPU, each for `capacity` experts of any layer, and the copies to them.

    `host_copies` maps a layer number to the host copies of the layer's tensors.
    """

    def __init__(
        self, device: Device, host_copies: Mapping[int, Sequence[HostExpertCopies]], capacity: int
    ) -> None:
        assert capacity > 0, "a buffer without room"
        self._host_copies, self._capacity = dict(host_copies), capacity
        sizes = [sum(each.stride for each in tensors) for tensors in host_copies.values()]
        size = capacity * max(sizes, default=0)
        self._buffers = [Span(device.allocate(size), 0, size) for _ in range(_NUM_BUFFERS)]
        self._chunks: list[Chunk] = []
        self._num_copied = dict.fromkeys(self._host_copies, 0)

    @property
    def num_copied(self) -> Mapping[int, int]:
        """The number of experts that were copied so far, by layer."""
        return self._num_copied

    @property
    def referenced(self) -> tuple[Span, ...]:
        """The memory of both buffers; the address tables may point into it."""
        return tuple(self._buffers)

    def begin(self, slots: Mapping[int, Slots]) -> None:
        """Divides the layers of `slots` into chunks for a new batch, in the order of `slots`.

        `slots` maps a layer number to the slot of each expert. Experts without a slot are copied.
        """
        self._chunks = []
        for layer, slot_of in slots.items():
            self._cut(layer, slot_of)

    def _cut(self, layer: int, slot_of: Slots) -> None:
        """Cuts a layer into chunks; the missing experts of each chunk fit into a buffer."""
        first, missing = 0, list[int]()
        for expert in range(len(slot_of)):
            if slot_of[expert] < 0 and len(missing) == self._capacity:
                self._add(layer, first, expert, missing)
                first, missing = expert, []
            if slot_of[expert] < 0:
                missing.append(expert)
        self._add(layer, first, len(slot_of), missing)

    def _add(self, layer: int, first: int, end: int, missing: Sequence[int]) -> None:
        chunk = Chunk(len(self._chunks), layer, first, end - first, tuple(missing))
        self._chunks.append(chunk)
        self._num_copied[layer] += len(missing)

    def chunks(self, layer: int) -> list[Chunk]:
        """Returns the chunks of a layer, in order."""
        return [chunk for chunk in self._chunks if chunk.layer == layer]

    def addresses(self, layer: int, tensor: int) -> Addresses:
        """Returns the address in a buffer of each expert's part of a tensor, (experts,).

        An address is valid while the expert's chunk computes. Experts with a slot have address 0.
        """
        table = np.zeros(self._host_copies[layer][tensor].num_experts, np.uint64)
        for chunk in self.chunks(layer):
            for index, expert in enumerate(chunk.missing):
                table[expert] = self._part(chunk, tensor, index, 1).address
        return table

    def wait_for(self, chunk: Chunk, wait: Wait | None = None) -> Iterator[Call]:
        """Yields the calls to make before a chunk computes: they wait until it has been copied.

        For the first chunk, they also start the first copies. `wait` receives the waiting time.
        """
        if chunk.number == 0:
            for early in self._chunks[:_NUM_BUFFERS]:
                yield from self._fetch(early)
        if chunk.missing:
            waiting = WaitFor((self, chunk.buffer))
            yield from (waiting,) if wait is None else (waits.begin(wait), waiting, waits.end(wait))

    def refill_after(self, chunk: Chunk) -> Iterator[Call]:
        """Yields the calls to make after a chunk has computed: they refill its buffer."""
        number = chunk.number + _NUM_BUFFERS
        if number < len(self._chunks):
            yield from self._fetch(self._chunks[number])

    def _fetch(self, chunk: Chunk) -> Iterator[Call]:
        copies = [
            copy for tensor in range(len(self._host_copies[chunk.layer]))
            for copy in self._copies(chunk, tensor)
        ]  # fmt: skip
        if copies:
            yield SideStream((self, chunk.buffer), tuple(copies))

    def _copies(self, chunk: Chunk, tensor: int) -> Iterator[Copy]:
        """Yields one copy for each run of adjacent missing experts."""
        host_copies = self._host_copies[chunk.layer][tensor]
        index = 0
        for first, count in _runs(chunk.missing):
            yield Copy(self._part(chunk, tensor, index, count), host_copies.span(first, count))
            index += count

    def _part(self, chunk: Chunk, tensor: int, index: int, count: int) -> Span:
        """Returns the memory for `count` experts' parts of a tensor in a chunk's buffer.

        `index` is that of the first of these experts among the experts in the buffer. A buffer
        has room for all experts' parts of the first tensor, then of the next tensor.
        """
        tensors = self._host_copies[chunk.layer]
        before = self._capacity * sum(each.stride for each in tensors[:tensor])
        stride = tensors[tensor].stride
        return self._buffers[chunk.buffer].part(before + index * stride, count * stride)


def _runs(experts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (first, count) of each run of adjacent ids; the ids are ascending."""
    start = 0
    for i in range(1, len(experts) + 1):
        if i == len(experts) or experts[i] != experts[i - 1] + 1:
            if experts:
                yield experts[start], i - start
            start = i
