"""PrefillExpertAccess: how a batch reads the experts of slotted layers, and where they are.

The address tables are valid while a batch passes through the layer; slots do not change meanwhile.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.expert_stream import ExpertStream
from sharpi.ops.cuda.expert_slots.slot_memories import SlotMemories
from sharpi.ops.cuda.expert_slots.slot_memory import matrices_of, offset_of
from sharpi.ops.cuda.expert_slots.slot_settings import SlotSettings
from sharpi.ops.cuda.expert_slots.slot_state import SlotStates
from sharpi.ops.cuda.recorded import StepShape
from sharpi.ops.interface import ExpertWeights, StackedMatrix

ExpertAccess: TypeAlias = Literal["streamed", "in place", "host"]

# Whole layers are copied if their experts have at least so many items on average.
STREAMED_ITEMS = 4
_ADDRESS_BYTES, _MAX_MATRICES = 8, 3


class PrefillExpertAccess:
    """Chooses for every batch how it reads the experts of each layer.

    `layers` has the expert weights, and `rows` the kind of rows that are computed, by layer number.
    """

    def __init__(
        self,
        device: Device,
        settings: SlotSettings,
        layers: Mapping[int, ExpertWeights],
        rows: Mapping[int, Rows],
        memories: SlotMemories,
    ) -> None:
        self._device, self._settings = device, settings
        self._layers, self._rows, self._memories = layers, rows, memories
        self._access: dict[int, ExpertAccess] = {}
        self._tables: dict[int, dict[int, Span]] = {}
        self._turns = 1

    @property
    def streams(self) -> bool:
        """True if there are buffers that experts can pass through."""
        return self._settings.num_streamed > 0 and self._settings.is_reached

    @cached_property
    def stream(self) -> ExpertStream:
        """The buffers that experts pass through; `streams` must be true."""
        assert self.streams
        host_copies = {
            number: [t.host_copies for t in tensors]
            for number, tensors in self._memories.tensors.items()
            if self._settings.reaches(number)
        }
        return ExpertStream(self._device, host_copies, self._settings.num_streamed)

    def access(self, number: int) -> ExpertAccess:
        """Returns how the current batch reads the experts of a layer."""
        return self._access[number]

    def num_streamed(self, number: int) -> int:
        """Returns the number of a layer's experts that passed through the buffers so far."""
        has_buffers = "stream" in self.__dict__
        return self.stream.num_copied.get(number, 0) if has_buffers else 0

    def tables(self, number: int) -> dict[int, Span]:
        """Returns the address tables of a layer for the current batch, by index of the matrix."""
        return self._tables[number]

    def num_groups(self, number: int) -> int:
        """Returns the number of chunks of a layer that the current batches compute in turn."""
        is_streamed = self._access.get(number) == "streamed"
        if not is_streamed or self._rows[number] is not Rows.TOKENS or self._turns == 1:
            return 1
        return len(self.stream.chunks(number))

    def begin(self, steps: Mapping[int, StepShape]) -> None:
        """Begins a batch, or several that compute each chunk in turn; `steps` has shapes by layer.

        How a layer's experts are read depends on which of them have slots now. The shapes count the
        tokens of all batches together.
        """
        self._turns = max((step.turns for step in steps.values()), default=1)
        states = self._memories.tables.words.read_states()
        tokens = {n: step.rows(self._rows[n]) for n, step in steps.items()}
        passing = [number for number, count in tokens.items() if count > 1]
        for number in passing:
            self._access[number] = self._choose(number, tokens[number], steps[number])
        if self.streams:
            streamed = [n for n in passing if self._access[n] == "streamed"]
            self.stream.begin({number: states[number].slot_of for number in streamed})
        self._upload(passing, states)

    def _choose(self, number: int, tokens: int, step: StepShape) -> ExpertAccess:
        rules, is_reached = self._settings.rules, self._settings.reaches(number)
        is_many = tokens * rules.experts_per_token >= STREAMED_ITEMS * rules.num_experts
        if self.streams and is_reached and is_many:
            return "streamed"
        return "in place" if is_reached and step.misses != "cpu" else "host"

    def _upload(self, numbers: Iterable[int], states: Mapping[int, SlotStates]) -> None:
        """Uploads all tables of the batch in one copy."""
        rows, places = [], []
        for number in numbers:
            for place, stacked in enumerate(matrices_of(self._layers[number])):
                rows.append(self._addresses(number, place, stacked, states[number]))
                places.append((number, place))
        if not rows:
            return
        table = np.concatenate(rows)
        self._device.upload(self._all_tables.part(0, table.nbytes), table)
        size = self._settings.rules.num_experts * _ADDRESS_BYTES
        for i, (number, place) in enumerate(places):
            span = self._all_tables.part(i * size, size)
            self._tables.setdefault(number, {})[place] = span

    @cached_property
    def _all_tables(self) -> Span:
        experts = self._settings.rules.num_experts
        size = len(self._layers) * _MAX_MATRICES * experts * _ADDRESS_BYTES
        return Span(self._device.allocate(size), 0, size)

    def _addresses(
        self, number: int, place: int, stacked: StackedMatrix, states: SlotStates
    ) -> npt.NDArray[np.uint64]:
        """Returns the address of each expert's matrix while the batch passes, (experts,)."""
        tensors = self._memories.tensors[number]
        index = next(i for i, tensor in enumerate(tensors) if place in tensor.matrices)
        access, piece = self._access[number], self._memories.pieces(number)[index]
        if access == "streamed":
            table = self.stream.addresses(number, index)
        elif access == "host":
            table = np.zeros(stacked.num_experts, np.uint64)
        else:
            table = piece.host_addresses.copy()
        has_slot = states.slot_of >= 0
        steps = states.slot_of[has_slot].astype(np.uint64) * np.uint64(piece.stride)
        table[has_slot] = np.uint64(piece.slots.address) + steps
        return np.where(table > 0, table + np.uint64(offset_of(stacked)), table)
