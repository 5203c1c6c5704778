"""PrefillExpertAccess: how a batch reads the experts of slotted layers, and from which addresses.

The address tables are valid while the batch computes the layer; slots do not change meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.slot_memories import SlotMemories
from sharpi.ops.cuda.expert_slots.slot_memory import HostExpertCopies, matrices_of, offset_of
from sharpi.ops.cuda.expert_slots.slot_state import SlotStates
from sharpi.ops.cuda.launchers.experts.host_items import Wait, begin_wait, end_wait
from sharpi.ops.cuda.recorded import Call, Copy, SideStream, StepShape, WaitFor
from sharpi.ops.interface import StackedMatrix

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
            yield from (waiting,) if wait is None else (begin_wait(wait), waiting, end_wait(wait))

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
        """Returns the memory of `count` experts of a tensor in a buffer, from place `index` on."""
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


ExpertAccess: TypeAlias = Literal["streamed", "in place", "host"]

# All missed experts are streamed if a layer's experts have at least so many tokens on average.
STREAMED_ITEMS = 4
_ADDRESS_BYTES, _MAX_MATRICES = 8, 3


class PrefillExpertAccess:
    """Chooses for every batch how it reads the experts of each slotted layer.

    Missed experts are copied to buffers, read in place from host copies, or computed by the CPU.
    """

    def __init__(self, device: Device, memories: SlotMemories) -> None:
        self._device, self._memories, self._settings = device, memories, memories.settings
        self._access: dict[int, ExpertAccess] = {}
        self._tables: dict[int, dict[int, Span]] = {}
        self._num_batches = 1

    @property
    def streams(self) -> bool:
        """True if there are buffers to which missed experts can be streamed."""
        return self._settings.num_streamed > 0 and self._settings.reads_ram

    @cached_property
    def stream(self) -> ExpertStream:
        """The buffers to which missed experts are streamed; `streams` must be true."""
        assert self.streams
        host_copies = {
            number: [t.host_copies for t in tensors]
            for number, tensors in self._memories.tensors.items()
            if self._settings.reads_host_copies(number)
        }
        return ExpertStream(self._device, host_copies, self._settings.num_streamed)

    def access(self, number: int) -> ExpertAccess:
        """Returns how the current batch reads the missed experts of layer `number`."""
        return self._access[number]

    def num_streamed(self, number: int) -> int:
        """Returns the number of a layer's experts that have been streamed to the buffers so far."""
        has_buffers = "stream" in self.__dict__
        return self.stream.num_copied.get(number, 0) if has_buffers else 0

    def tables(self, number: int) -> dict[int, Span]:
        """Returns the address tables of a layer for the current batch, by index of the matrix."""
        return self._tables[number]

    def num_chunks(self, number: int) -> int:
        """Returns the number of chunks of a layer that the current batches compute separately.

        It is 1 unless several batches run layer by layer and the layer's experts are streamed.
        """
        is_streamed = self._access.get(number) == "streamed" and self._num_batches > 1
        if not is_streamed or self._memories.rows[number] is not Rows.TOKENS:
            return 1
        return len(self.stream.chunks(number))

    def begin(self, steps: Mapping[int, StepShape]) -> None:
        """Chooses the access for a batch, or for several that run layer by layer.

        `steps` maps a layer number to a step shape, which counts the tokens of all these batches.
        Uploads the address tables, which depend on the experts that are resident now.
        """
        self._num_batches = max((step.num_batches for step in steps.values()), default=1)
        states = self._memories.tables.words.read_states()
        tokens = {n: step.rows(self._memories.rows[n]) for n, step in steps.items()}
        numbers = [number for number, count in tokens.items() if count > 1]
        for number in numbers:
            self._access[number] = self._choose(number, tokens[number], steps[number])
        if self.streams:
            streamed = [n for n in numbers if self._access[n] == "streamed"]
            self.stream.begin({number: states[number].slot_of for number in streamed})
        self._upload(numbers, states)

    def _choose(self, number: int, tokens: int, step: StepShape) -> ExpertAccess:
        rules, reads_ram = self._settings.rules, self._settings.reads_host_copies(number)
        is_many = tokens * rules.experts_per_token >= STREAMED_ITEMS * rules.num_experts
        if self.streams and reads_ram and is_many:
            return "streamed"
        return "in place" if reads_ram and step.misses != "cpu" else "host"

    def _upload(self, numbers: Iterable[int], states: Mapping[int, SlotStates]) -> None:
        """Uploads the address tables of the layers `numbers` in one copy."""
        rows, keys = [], []
        for number in numbers:
            for matrix, stacked in enumerate(matrices_of(self._memories.layers[number])):
                rows.append(self._addresses(number, matrix, stacked, states[number]))
                keys.append((number, matrix))
        if not rows:
            return
        table = np.concatenate(rows)
        self._device.upload(self._all_tables.part(0, table.nbytes), table)
        size = self._settings.rules.num_experts * _ADDRESS_BYTES
        for i, (number, matrix) in enumerate(keys):
            span = self._all_tables.part(i * size, size)
            self._tables.setdefault(number, {})[matrix] = span

    @cached_property
    def _all_tables(self) -> Span:
        experts = self._settings.rules.num_experts
        size = len(self._memories.layers) * _MAX_MATRICES * experts * _ADDRESS_BYTES
        return Span(self._device.allocate(size), 0, size)

    def _addresses(
        self, number: int, matrix: int, stacked: StackedMatrix, states: SlotStates
    ) -> npt.NDArray[np.uint64]:
        """Returns each expert's address for the batch, (experts,); 0 if the CPU computes it."""
        tensors = self._memories.tensors[number]
        index = next(i for i, tensor in enumerate(tensors) if matrix in tensor.matrices)
        access, piece = self._access[number], self._memories.pieces(number)[index]
        if access == "streamed":
            table = self.stream.addresses(number, index)
        elif access == "host":
            table = np.zeros(stacked.num_experts, np.uint64)
        else:
            table = piece.copies.copy()
        has_slot = states.slot_of >= 0
        steps = states.slot_of[has_slot].astype(np.uint64) * np.uint64(piece.stride)
        table[has_slot] = np.uint64(piece.slots.address) + steps
        return np.where(table > 0, table + np.uint64(offset_of(stacked)), table)
