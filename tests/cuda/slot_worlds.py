"""Layers of small experts with slots on a device, all bytes of which tests can check."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from device_arrays import empty, read, upload

from sharpi.device.device import Device, Work
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.expert_slots.slot_memory import SlotLayer, SlotPiece, SlotTable
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.expert_slots.slot_tables import SlotTables
from sharpi.ops.cuda.launchers.experts.slot_policy import KernelMissMode, PolicyRules

SIZES = (96, 50)  # bytes of an expert's two tensors; the second one's copies are not aligned alike
OFFSETS = ((0, 48), (2,))  # of the tables' rows


@dataclass(frozen=True)
class ExtraSlots:
    """How many slots there are beside a layer's own."""

    early: int = 0
    staging: int = 0


@dataclass(frozen=True)
class Decision:
    """A layer's use of one token without its copies, recorded as a step's launches are."""

    ids: Span
    launches: Sequence[Launch]
    run: Work


class SlotWorld:
    """`SlotTables` over random bytes, in layers of the given numbers of slots; 0: no experts."""

    def __init__(
        self,
        device: Device,
        rules: PolicyRules,
        slots: Sequence[int],
        extra: ExtraSlots | None = None,
        pinned: tuple[int, ...] = (),
        warm: tuple[int, ...] = (),
        miss: KernelMissMode = KernelMissMode.BUS,
    ) -> None:
        self.miss = miss
        self.device, self.rules, self.extra = device, rules, extra or ExtraSlots()
        rng = np.random.default_rng(rules.num_experts)
        shape = (rules.num_layers, rules.num_experts)
        self.bytes = [rng.integers(0, 256, (*shape, size), np.uint8) for size in SIZES]
        self._staging = [empty(device, self.extra.staging * 112) for _ in SIZES]
        self.spans: list[Span] = []
        self.layers = {
            layer: SlotLayer(
                tuple(self._piece(layer, part, most) for part in range(len(SIZES))),
                FirstSlots(most, pinned, warm),
            )
            for layer, most in enumerate(slots)
            if most
        }
        self.tables = SlotTables(device, rules, self.layers)
        self._decisions: dict[int, Decision] = {}
        for layer in self.layers:
            residents = self.layers[layer].first.residents(rules.kind)
            for slot, expert in enumerate(residents):
                self._fill(layer, expert, slot)

    def _piece(self, layer: int, part: int, num_slots: int) -> SlotPiece:
        size, experts = SIZES[part], self.rules.num_experts
        stride = size + 16
        memory, host = self.device.mapped(stride * experts + 16)
        offset = 2 * part
        view = host[offset : offset + stride * experts].reshape(experts, stride)
        view[:, :size] = self.bytes[part][layer]
        home = Span(memory, 0, memory.num_bytes)
        starts = memory.address + offset + stride * np.arange(experts, dtype=np.uint64)
        slots = empty(self.device, num_slots * stride)
        early = empty(self.device, self.extra.early * stride) if self.extra.early else None
        staging = self._staging[part] if self.extra.staging else None
        self.spans += [each for each in (home, slots, early, staging) if each is not None]
        tables = tuple(SlotTable(empty(self.device, 8 * experts), at) for at in OFFSETS[part])
        memory_of = (upload(self.device, starts), slots, early, staging, stride, size, (home,))
        return SlotPiece(*memory_of, copies=starts, tables=tables)

    def _fill(self, layer: int, expert: int, slot: int) -> None:
        for piece, data in zip(self.layers[layer].pieces, self.bytes, strict=True):
            self.device.upload(
                piece.slots.part(slot * piece.stride, piece.num_bytes), data[layer, expert]
            )

    def run(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            self.device.launch(launch)

    def use(self, layer: int, ids: Sequence[int]) -> npt.NDArray[np.int32]:
        """Runs a token's use; returns the loads: rows of expert, target, source."""
        return self.use_together(layer, [ids])

    def use_together(self, layer: int, routes: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
        """Runs the uses of a step's tokens, one after the other; returns the last one's loads."""
        rows = upload(self.device, np.array(routes, np.int32))
        for row in range(len(routes)):
            launches = self.tables.use(
                layer, rows, self.miss, num_before=row, num_tokens=len(routes)
            )
            self.run(launches)
        return self.loads(launches)

    def decide(self, layer: int, ids: Sequence[int]) -> npt.NDArray[np.int32]:
        """Runs a token's use without its copies; returns the loads."""
        if layer not in self._decisions:
            self._decisions[layer] = self._decision(layer)
        decision = self._decisions[layer]
        self.device.upload(decision.ids, np.array(ids, np.int32))
        decision.run()
        return self.loads(decision.launches)

    def _decision(self, layer: int) -> Decision:
        ids = empty(self.device, 4 * self.rules.experts_per_token)
        launches = self.tables.use(layer, ids, self.miss)
        self.device.prepare([launches[0].kernel])
        return Decision(
            ids, launches, self.device.record([partial(self.device.launch, launches[0])])
        )

    def use_batch(self, layer: int, routes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Runs a batch's use; returns the loads."""
        launches = self.tables.use_batch(layer, upload(self.device, routes), len(routes))
        self.run(launches)
        return self.loads(launches)

    def prefetch(
        self,
        layer: int,
        predictions: Sequence[int] | Sequence[Sequence[int]],
        after: int,
        budget: int,
    ) -> list[int]:
        """Prefetches experts of a layer, for one token or several; returns those fetched."""
        rows = np.array(predictions, np.int32).reshape(-1, self.rules.experts_per_token)
        launches = self.tables.prefetch(layer, upload(self.device, rows), after, budget, len(rows))
        self.run(launches)
        return self.loads(launches)[:, 0].tolist()

    def loads(self, launches: Sequence[Launch]) -> npt.NDArray[np.int32]:
        """Reads the list of loads that the last of these launches copies."""
        span = launches[-1].arguments[0]
        assert isinstance(span, Span)
        words = read(self.device, span, np.int32, (span.num_bytes // 4,))
        return words[4 : 4 + 4 * words[0]].reshape(-1, 4)[:, :3]

    def addresses(self, layer: int) -> list[npt.NDArray[np.uint64]]:
        """Returns the layer's tables without their offsets, piece by piece."""
        experts = (self.rules.num_experts,)
        return [
            read(self.device, table.addresses, np.uint64, experts) - np.uint64(table.offset)
            for piece in self.layers[layer].pieces
            for table in piece.tables
        ]

    def assert_true(self, layer: int, experts: Sequence[int]) -> None:
        """Checks that the tables lead to these experts' bytes, in slots for those that have one."""
        slots = self.tables.words.read_states()[layer].slot_of
        places = iter(self.addresses(layer))
        for piece, data in zip(self.layers[layer].pieces, self.bytes, strict=True):
            for _ in piece.tables:
                table = next(places)
                for expert in experts:
                    found = self._bytes_at(int(table[expert]), piece.num_bytes)
                    np.testing.assert_array_equal(found, data[layer, expert])
                    if slots[expert] >= 0:
                        at = piece.slots.address + int(slots[expert]) * piece.stride
                        assert int(table[expert]) == at

    def _bytes_at(self, address: int, num_bytes: int) -> npt.NDArray[Any]:
        for span in self.spans:
            if span.address <= address and address + num_bytes <= span.address + span.num_bytes:
                part = span.part(address - span.address, num_bytes)
                return read(self.device, part, np.uint8, (num_bytes,))
        raise AssertionError(f"{address:#x} is in no memory of the experts")
