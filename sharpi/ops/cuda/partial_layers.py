"""PartialLayers: layers of which some experts have slots on the card and all have homes elsewhere.

A token finds its experts by tables that the slots' kernels keep; a batch by tables of its own,
which say where everything is while it passes, and slots are filled after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.abi import Rows
from sharpi.ops.cuda.card_weights import CardWeights
from sharpi.ops.cuda.expert_stream import ExpertStream
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.slot_layer import SlotLayer
from sharpi.ops.cuda.slot_memory import (
    SharedRoom,
    Tensor,
    banks_of,
    offset_of,
    slot_layer,
    tensors_of,
)
from sharpi.ops.cuda.slot_policy import MissMode, PolicyRules
from sharpi.ops.cuda.slot_state import FirstSlots, SlotStates
from sharpi.ops.cuda.slot_tables import SlotTables
from sharpi.ops.cuda.values import Extent
from sharpi.ops.cuda.values import MissMode as Misses
from sharpi.ops.interface import Bank, ExpertBanks

Way = Literal["streamed", "in place", "host"]

STREAMED_ITEMS = 4  # of an expert on average: from here on a layer is brought as a whole
_MODES = {"load": MissMode.LOAD, "stream": MissMode.STREAM, "cpu": MissMode.COMPUTE}
_ADDRESS_BYTES, _MOST_BANKS = 8, 3


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """`first`: what the slots of each layer begin with; a layer without is on the card as a whole.

    `num_staging`, `num_early`: experts that are on the card for one use, or early, without a slot.
    `num_streamed`: experts of each of two buffers. `is_reached`: whether the card can read homes;
    not those of the layers `computed`, whose missed experts the host computes in any case.
    """

    rules: PolicyRules
    first: Mapping[int, FirstSlots]
    num_staging: int
    num_early: int
    num_streamed: int
    is_reached: bool = True
    computed: frozenset[int] = frozenset()

    def reaches(self, number: int) -> bool:
        """Whether the card can read the homes of a layer's experts."""
        return self.is_reached and number not in self.computed


@dataclass(slots=True)
class _Layer:
    """`ways`: how the batch passes that was announced last."""

    banks: ExpertBanks
    rows: Rows
    way: Way = "in place"
    passing: dict[int, Span] = field(default_factory=dict)


class PartialLayers:
    """Layers are wanted while a step is recorded; memory is taken when one is first asked for."""

    def __init__(self, device: Device, weights: CardWeights, settings: SlotSettings) -> None:
        self._device, self._weights, self._settings = device, weights, settings
        self._layers: dict[int, _Layer] = {}
        self._turns = 1

    @property
    def rules(self) -> PolicyRules:
        """How all layers decide."""
        return self._settings.rules

    def has(self, banks: ExpertBanks) -> bool:
        """Whether these are the experts of such a layer."""
        return banks.layer in self._settings.first

    def fetches_early(self, number: int) -> bool:
        """Whether experts that were guessed for a layer can be brought before it wants them."""
        s = self._settings
        return s.num_early > 0 and s.reaches(number) and number in s.first

    def extent(self, number: int, extent: Extent) -> Extent:
        """As a layer takes part in a step."""
        if number in self._settings.computed:
            return extent._replace(misses="cpu")
        return extent

    def want(self, banks: ExpertBanks, rows: Rows) -> int:
        """Remembers a layer; returns its number."""
        assert banks.layer is not None
        for bank in banks_of(banks):
            for array in (bank.bias, bank.scales):
                if array is not None:
                    self._weights.want(array)
        self._layers.setdefault(banks.layer, _Layer(banks, rows))
        return banks.layer

    @cached_property
    def _tensors(self) -> dict[int, tuple[Tensor, ...]]:
        reaches = self._settings.reaches
        return {
            number: tensors_of(self._device, layer.banks, is_reached=reaches(number))
            for number, layer in self._layers.items()
        }

    @cached_property
    def _slot_layers(self) -> dict[int, SlotLayer]:
        device, s = self._device, self._settings
        largest = max(sum(t.slot_bytes for t in tensors) for tensors in self._tensors.values())
        staging = SharedRoom(device, s.num_staging, largest)
        early = [SharedRoom(device, s.num_early, largest) for _ in range(2)]
        made = {}
        for place, (number, tensors) in enumerate(self._tensors.items()):
            banks, first = self._layers[number].banks, s.first[number]
            made[number] = slot_layer(device, banks, tensors, first, staging, early[place % 2])
        return made

    @cached_property
    def tables(self) -> SlotTables:
        """The slots of all layers, filled with what they begin with."""
        tables = SlotTables(self._device, self._settings.rules, self._slot_layers)
        for number, layer in self._slot_layers.items():
            loads = tables.first_loads(number)
            self._fill(number, layer, [expert for expert, _ in loads])
        return tables

    def _fill(self, number: int, layer: SlotLayer, residents: Sequence[int]) -> None:
        """Copies these experts to the slots, from the first one on."""
        for slot, expert in enumerate(residents):
            for tensor, piece in zip(self._tensors[number], layer.pieces, strict=True):
                target = piece.slots.part(slot * piece.stride, piece.num_bytes)
                tensor.homes.bring(self._device, expert, target)

    def shrink(self, slots: Mapping[int, int]) -> None:
        """Between tokens: layers have so many slots at most, and the memory of others is free.

        What stays is copied from its homes anew: there is no moment at which it is there twice.
        """
        fewer = {n: count for n, count in slots.items() if count < self.num_slots(n)}
        for number, count in fewer.items():
            self.tables.resize(number, count)
        states = self.tables.read_states()
        for number, count in fewer.items():
            slot_of = states[number].slot_of
            residents = np.argsort(slot_of, kind="stable")[np.count_nonzero(slot_of < 0) :]
            self._move(number, count, residents.tolist())

    def _move(self, number: int, num_slots: int, residents: Sequence[int]) -> None:
        nothing, pieces = self._device.allocate(0), self._slot_layers[number].pieces
        sizes = [num_slots * piece.stride for piece in pieces]
        self._set_memory(number, [Span(nothing, 0, 0) for _ in sizes], ())
        del pieces
        memories = [Span(self._device.allocate(size), 0, size) for size in sizes]
        self._fill(number, self._set_memory(number, memories, residents), residents)

    def _set_memory(
        self, number: int, memories: Sequence[Span], residents: Sequence[int]
    ) -> SlotLayer:
        layer = self._slot_layers[number].with_slots(memories)
        self._slot_layers[number] = layer
        self.tables.set_memory(number, layer, residents)
        return layer

    @cached_property
    def _stream(self) -> ExpertStream | None:
        if not self.streams:
            return None
        homes = {
            number: [t.homes for t in tensors]
            for number, tensors in self._tensors.items()
            if self._settings.reaches(number)
        }
        return ExpertStream(self._device, homes, self._settings.num_streamed)

    @property
    def streams(self) -> bool:
        """Whether there are buffers that batches pass through."""
        return self._settings.num_streamed > 0 and self._settings.is_reached

    @property
    def stream(self) -> ExpertStream:
        """The buffers that batches pass through; there have to be some."""
        assert self._stream is not None
        return self._stream

    @property
    def numbers(self) -> tuple[int, ...]:
        """The layers that have slots, in order."""
        return tuple(self._settings.first)

    def num_slots(self, number: int) -> int:
        """Slots that a layer has memory for."""
        return self._slot_layers[number].num_slots

    def parts(self, number: int) -> tuple[BankPart, ...]:
        """The banks by the tables that the slots' kernels keep."""
        layer, tables = self._layers[number], dict[int, Span]()
        for tensor, piece in zip(
            self._tensors[number], self._slot_layers[number].pieces, strict=True
        ):
            tables |= {
                place: table.addresses
                for place, table in zip(tensor.banks, piece.tables, strict=True)
            }
        return self._bank_parts(number, layer, tables)

    def passing_parts(self, number: int) -> tuple[BankPart, ...]:
        """The banks by the tables of the batch that was announced last."""
        layer = self._layers[number]
        return self._bank_parts(number, layer, layer.passing)

    def _bank_parts(
        self, number: int, layer: _Layer, tables: Mapping[int, Span]
    ) -> tuple[BankPart, ...]:
        reach = tuple(self._reach(number))
        optional = self._weights.optional
        return tuple(
            BankPart(tables[place], optional(bank.bias), reach, optional(bank.scales))
            for place, bank in enumerate(banks_of(layer.banks))
        )

    def _reach(self, number: int) -> Iterator[Span]:
        for piece in self._slot_layers[number].pieces:
            yield from (s for s in (piece.slots, piece.staging, piece.early) if s is not None)
            yield from piece.reach
        if self._stream is not None:
            yield from self._stream.reach

    def way(self, number: int) -> Way:
        """How the batch that was announced last passes through a layer."""
        return self._layers[number].way

    def use(self, number: int, ids: Span, misses: Misses) -> Iterable[Launch]:
        """A token's experts are looked up, and some of the missed ones brought."""
        return self.tables.use(number, ids, _MODES[misses])

    def prefetch(self, number: int, guesses: Span, after: int) -> Iterable[Launch]:
        """A token's guessed experts are brought early, if layer `after` leaves the link idle."""
        return self.tables.prefetch(number, guesses, after, self._settings.num_early)

    def use_batch(self, number: int, ids: Span, tokens: int) -> Iterable[Launch]:
        """A batch has passed through the layer: free slots are filled with its experts."""
        return self.tables.use_batch(number, ids, tokens)

    def num_groups(self, number: int) -> int:
        """Chunks of a layer's experts at each of which the announced batches take turns."""
        layer = self._layers[number]
        if layer.way != "streamed" or layer.rows is not Rows.TOKENS or self._turns == 1:
            return 1
        return len(self.stream.chunks(number))

    def begin(self, extent: Extent) -> None:
        """Announces a batch, or several that take turns: decides how they pass.

        By who has a slot now; `extent` has the tokens of all of them.
        """
        self._turns = extent.turns
        states = self.tables.read_states()
        batches = {n: extent.rows(layer.rows) for n, layer in self._layers.items()}
        passing = [number for number, tokens in batches.items() if tokens > 1]
        for number in passing:
            misses = self.extent(number, extent).misses
            self._layers[number].way = self._choose(number, batches[number], misses)
        if self._stream is not None:
            streamed = [n for n in passing if self._layers[n].way == "streamed"]
            self._stream.begin({number: states[number].slot_of for number in streamed})
        self._upload_tables(passing, states)

    def _choose(self, number: int, tokens: int, misses: Misses) -> Way:
        rules, is_reached = self._settings.rules, self._settings.reaches(number)
        is_many = tokens * rules.experts_per_token >= STREAMED_ITEMS * rules.num_experts
        if self._stream is not None and is_reached and is_many:
            return "streamed"
        return "in place" if is_reached and misses != "cpu" else "host"

    def _upload_tables(self, numbers: Iterable[int], states: Mapping[int, SlotStates]) -> None:
        """All the batch's tables in one copy."""
        rows, places = [], []
        for number in numbers:
            for place, bank in enumerate(banks_of(self._layers[number].banks)):
                rows.append(self._addresses(number, place, bank, states[number]))
                places.append((number, place))
        if not rows:
            return
        table = np.concatenate(rows)
        self._device.upload(self._passing_tables.part(0, table.nbytes), table)
        size = self._settings.rules.num_experts * _ADDRESS_BYTES
        for i, (number, place) in enumerate(places):
            self._layers[number].passing[place] = self._passing_tables.part(i * size, size)

    @cached_property
    def _passing_tables(self) -> Span:
        experts = self._settings.rules.num_experts
        size = len(self._layers) * _MOST_BANKS * experts * _ADDRESS_BYTES
        return Span(self._device.allocate(size), 0, size)

    def _addresses(
        self, number: int, place: int, bank: Bank, states: SlotStates
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        """Where each expert of a bank is while the batch passes."""
        index = next(i for i, t in enumerate(self._tensors[number]) if place in t.banks)
        way, piece = self._layers[number].way, self._slot_layers[number].pieces[index]
        if way == "streamed":
            table = self.stream.addresses(number, index)
        elif way == "host":
            table = np.zeros(bank.num_experts, np.uint64)
        else:
            table = piece.homes.copy()
        has_slot = states.slot_of >= 0
        steps = states.slot_of[has_slot].astype(np.uint64) * np.uint64(piece.stride)
        table[has_slot] = np.uint64(piece.slots.address) + steps
        return np.where(table > 0, table + np.uint64(offset_of(bank)), table)
