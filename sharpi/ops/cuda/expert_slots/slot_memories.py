"""SlotMemories: the GPU memory of layers with slots, allocated at its first use."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.slot_memory import (
    ExpertTensor,
    SharedBuffer,
    SlotLayer,
    SlotPiece,
    slot_layer,
    tensors_of,
)
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.expert_slots.slot_tables import SlotTables
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules
from sharpi.ops.interface import ExpertWeights


class SlotSettings(Struct, frozen=True):
    """The slots of all slotted layers; the GPU holds all experts of the other layers."""

    rules: PolicyRules
    first: Mapping[int, FirstSlots]  # the first experts, by layer number
    num_staging: int  # staging buffers, which hold experts for one use
    num_early: int  # early slots, to which predicted experts are prefetched
    num_streamed: int  # experts in each of the two buffers that stream experts for batches
    reads_ram: bool = True  # the GPU can read host copies
    computed: frozenset[int] = frozenset()  # layers whose missed experts the CPU always computes

    def reads_host_copies(self, number: int) -> bool:
        """Returns True if the GPU can read the host copies of a layer's experts."""
        return self.reads_ram and number not in self.computed


class SlotMemories:
    """The host copies, slots and address tables of `layers`, expert weights by layer number.

    They are allocated at the first use, when `layers` must contain all layers with slots. `rows`
    has the kind of rows that a layer's experts compute.
    """

    def __init__(self, device: Device, settings: SlotSettings) -> None:
        self._device, self.settings = device, settings
        self.layers: dict[int, ExpertWeights] = {}
        self.rows: dict[int, Rows] = {}

    @cached_property
    def tensors(self) -> dict[int, tuple[ExpertTensor, ...]]:
        """The tensors of each layer's experts, with their host copies, by layer number."""
        reads_host_copies = self.settings.reads_host_copies
        return {
            number: tensors_of(
                self._device, expert_weights, is_page_locked=reads_host_copies(number)
            )
            for number, expert_weights in self.layers.items()
        }

    @cached_property
    def tables(self) -> SlotTables:
        """The slots of all layers; the first use allocates them and copies the first experts."""
        device, s = self._device, self.settings
        largest = max(sum(t.slot_bytes for t in tensors) for tensors in self.tensors.values())
        staging = SharedBuffer(device, s.num_staging, largest)
        early = [SharedBuffer(device, s.num_early, largest) for _ in range(2)]
        layers = {
            number: slot_layer(
                device, self.layers[number], tensors, s.first[number], staging, early[index % 2]
            )
            for index, (number, tensors) in enumerate(self.tensors.items())
        }
        tables = SlotTables(device, s.rules, layers)
        for number, layer in layers.items():
            self._fill(number, layer, layer.first.residents(s.rules.kind))
        return tables

    def _fill(self, number: int, layer: SlotLayer, residents: Sequence[int]) -> None:
        """Copies `residents` to slots 0, 1, ..."""
        for slot, expert in enumerate(residents):
            for tensor, piece in zip(self.tensors[number], layer.pieces, strict=True):
                target = piece.slots.part(slot * piece.stride, piece.num_bytes)
                tensor.host_copies.copy_to(self._device, expert, target)

    def shrink(self, slots: Mapping[int, int]) -> None:
        """Reduces layers to the given numbers of slots, and frees the memory of other slots.

        It may only be called between tokens. Experts that keep a slot are copied again from host
        memory, so that old and new slots are never allocated at the same time.
        """
        fewer = {n: count for n, count in slots.items() if count < self.num_slots(n)}
        for number, count in fewer.items():
            self.tables.resize(number, count)
        states = self.tables.words.read_states()
        for number, count in fewer.items():
            slot_of = states[number].slot_of
            residents = np.argsort(slot_of, kind="stable")[np.count_nonzero(slot_of < 0) :]
            self._move(number, count, residents.tolist())

    def _move(self, number: int, num_slots: int, residents: Sequence[int]) -> None:
        nothing, pieces = self._device.allocate(0), self.pieces(number)
        sizes = [num_slots * piece.stride for piece in pieces]
        self._set_memory(number, [Span(nothing, 0, 0) for _ in sizes], ())
        del pieces
        memories = [Span(self._device.allocate(size), 0, size) for size in sizes]
        self._set_memory(number, memories, residents)
        self._fill(number, self.tables.memory[number].layer, residents)

    def _set_memory(self, number: int, memories: Sequence[Span], residents: Sequence[int]) -> None:
        layer = self.tables.memory[number].layer.with_slots(memories)
        self.tables.set_memory(number, layer, residents)

    def num_slots(self, number: int) -> int:
        """Returns the number of slots that a layer has memory for."""
        return self.tables.memory[number].layer.counts[0]

    def pieces(self, number: int) -> tuple[SlotPiece, ...]:
        """Returns the host copies and slot memory of a layer, one piece per tensor."""
        return self.tables.memory[number].layer.pieces

    def addresses(self, number: int) -> dict[int, Span]:
        """Returns the address tables that the slot kernels maintain, by index of the matrix."""
        pairs = zip(self.tensors[number], self.pieces(number), strict=True)
        return {
            matrix: table.addresses
            for tensor, piece in pairs
            for matrix, table in zip(tensor.matrices, piece.tables, strict=True)
        }

    def referenced(self, number: int) -> Iterator[Span]:
        """Yields the memory that a layer's address tables may point to, without `ExpertStream`."""
        for piece in self.pieces(number):
            yield from (s for s in (piece.slots, piece.staging, piece.early) if s is not None)
            yield from piece.referenced
