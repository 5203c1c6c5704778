"""SlottedLayers: layers of which some experts have slots on the GPU and all have host copies.

During decode, the slot kernels maintain the address tables. A batch of a prompt has separate
tables, which are valid while it computes; after the batch, free slots are filled.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Launch, Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.prefill_expert_access import PrefillExpertAccess
from sharpi.ops.cuda.expert_slots.slot_memories import SlotMemories, SlotSettings
from sharpi.ops.cuda.expert_slots.slot_memory import (
    matrices_of,
)
from sharpi.ops.cuda.expert_slots.slot_state import wait_of
from sharpi.ops.cuda.gpu_weights import GpuWeights
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.launchers.experts.host_items import Wait
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    BatchMissMode,
    KernelMissMode,
    Phase,
    PolicyRules,
)
from sharpi.ops.cuda.recorded import StepShape
from sharpi.ops.interface import ExpertWeights, StackedMatrix

_GATE_UP_DOWN = 3


def gpu_matrix(
    weights: GpuWeights, stacked: StackedMatrix, addresses: Span, referenced: tuple[Span, ...]
) -> GpuStackedMatrix:
    """Returns a stacked matrix with an address table, which points into `referenced`."""
    s, bias, factors = stacked, weights.optional(stacked.bias), weights.optional(stacked.scales)
    return GpuStackedMatrix(s.quant_type, s.rows, s.columns, addresses, bias, referenced, factors)


class SlotMoves:
    """The host's record of which expert is in which slot; `upload_residents` copies it."""

    def __init__(self, device: Device, memories: SlotMemories) -> None:
        self._device, self._memories = device, memories
        self._changed: set[int] = set()
        self.reload()

    def reload(self) -> None:
        """Reads which experts have slots; waits for the device."""
        states = self._memories.tables.words.read_states()
        self._in_slot = {number: _by_slot(each.slot_of) for number, each in states.items()}

    def residents(self, number: int) -> tuple[int, ...]:
        """Returns the experts in slots 0, 1, ... of a layer."""
        return tuple(self._in_slot[number])

    def has_free(self, number: int) -> bool:
        """Returns True if a slot of the layer is empty."""
        return len(self._in_slot[number]) < self._memories.num_slots(number)

    def stored(self, number: int, expert: int) -> tuple[HostArray, ...]:
        """Returns a resident expert's bytes, tensor by tensor, as copies; waits for the device."""
        copies = []
        for span in self._spans(number, self._in_slot[number].index(expert)):
            data: NDArray[np.uint8] = np.empty(span.num_bytes, np.uint8)
            self._device.download(span, data)
            copies.append(data)
        return tuple(copies)

    def mapped(self, number: int, expert: int) -> tuple[HostArray, ...]:
        """Returns views of an expert's bytes in the mapped file, tensor by tensor."""
        tensors = self._memories.tensors[number]
        return tuple(tensor.host_copies.bytes_of(expert) for tensor in tensors)

    def matrices(self, number: int) -> tuple[int, ...]:
        """Returns the first matrix in each tensor of a layer: 0 for gate, 1 for up, 2 for down."""
        tensors = self._memories.tensors[number]
        num_missing = _GATE_UP_DOWN - sum(len(tensor.matrices) for tensor in tensors)
        return tuple(num_missing + tensor.matrices[0] for tensor in tensors)

    def move_in(
        self, number: int, expert: int, victim: int | None, tensors: Sequence[HostArray]
    ) -> None:
        """Uploads an expert to the slot of `victim`, which is evicted; to a free one with None."""
        slots = self._in_slot[number]
        if victim is None:
            slots.append(expert)
        slot = slots.index(expert if victim is None else victim)
        slots[slot] = expert
        for span, tensor in zip(self._spans(number, slot), tensors, strict=True):
            self._device.upload(span, tensor)
        self._changed.add(number)

    def upload_residents(self) -> None:
        """Copies to the device which experts have slots now."""
        for number in self._changed:
            self._memories.tables.set_residents(number, self._in_slot[number])
        self._changed.clear()

    def _spans(self, number: int, slot: int) -> list[Span]:
        pieces = self._memories.pieces(number)
        return [piece.slots.part(slot * piece.stride, piece.num_bytes) for piece in pieces]


def _by_slot(slot_of: NDArray[np.int32]) -> list[int]:
    """Returns the resident experts in the order of their slots; no slot between them is free."""
    residents = np.flatnonzero(slot_of >= 0)
    ordered: list[int] = residents[np.argsort(slot_of[residents])].tolist()
    return ordered


_BATCH_MODES = {
    "streamed": BatchMissMode.STAGED,
    "in place": BatchMissMode.STREAMED,
    "host": BatchMissMode.COMPUTED,
}
_MODES = {"bus": KernelMissMode.BUS, "cpu": KernelMissMode.COMPUTE}


def phase_of(step: StepShape) -> Phase:
    """Returns the phase to whose statistics a step's experts are added."""
    return Phase.DECODE if step.is_decode and step.first is None else Phase.PROMPT


class SlottedLayers(SlotMemories):
    """The slotted layers of a model, and the launches that use their slots.

    The layers are registered while a step is recorded, before the first use of their memory.
    """

    def __init__(self, device: Device, weights: GpuWeights, settings: SlotSettings) -> None:
        super().__init__(device, settings)
        self._weights = weights
        self.prefill_access = PrefillExpertAccess(device, self)

    @property
    def rules(self) -> PolicyRules:
        """The policy and sizes that hold for all layers."""
        return self.settings.rules

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the layers that have slots, in order."""
        return tuple(self.settings.first)

    def fetches_early(self, number: int) -> bool:
        """Returns True if predicted experts of a layer can be prefetched to early slots."""
        s = self.settings
        return s.num_early > 0 and s.reads_host_copies(number) and number in s.first

    def step(self, number: int, step: StepShape) -> StepShape:
        """Returns the step's shape with a layer's miss mode; "cpu" where it always computes."""
        if number in self.settings.computed:
            return step._replace(misses="cpu")
        return step

    def register(self, expert_weights: ExpertWeights, rows: Rows) -> int:
        """Registers a layer by its experts and the kind of its `rows`; returns its number."""
        assert expert_weights.layer is not None
        for stacked in matrices_of(expert_weights):
            self._weights.register(stacked.bias, stacked.scales)
        self.layers.setdefault(expert_weights.layer, expert_weights)
        self.rows.setdefault(expert_weights.layer, rows)
        return expert_weights.layer

    def shrink(self, slots: Mapping[int, int]) -> None:
        super().shrink(slots)
        if "moves" in self.__dict__:
            self.moves.reload()

    @cached_property
    def moves(self) -> SlotMoves:
        """The object by which the host moves experts; the policy must be a static set."""
        return SlotMoves(self._device, self)

    def decode_matrices(self, number: int) -> tuple[GpuStackedMatrix, ...]:
        """Returns a layer's stacked matrices with decode's address tables, kept by slot kernels."""
        return self._gpu_matrices(number, self.addresses(number))

    def batch_matrices(self, number: int) -> tuple[GpuStackedMatrix, ...]:
        """Returns a layer's stacked matrices with the address tables of the current batch."""
        return self._gpu_matrices(number, self.prefill_access.tables(number))

    def _gpu_matrices(
        self, number: int, tables: Mapping[int, Span]
    ) -> tuple[GpuStackedMatrix, ...]:
        referenced = tuple(self.referenced(number))
        if self.prefill_access.streams:
            referenced += self.prefill_access.stream.referenced
        return tuple(
            gpu_matrix(self._weights, stacked, tables[index], referenced)
            for index, stacked in enumerate(matrices_of(self.layers[number]))
        )

    def use(self, number: int, ids: Span, step: StepShape, row: int) -> Iterable[Launch]:
        """Returns the launches that look up a token's experts and load some of the missed ones.

        `ids` starts with the routes of the step's tokens before `row`, which were looked up
        already; the token's route follows.
        """
        mode, tokens = _MODES[step.misses], step.rows(self.rows[number])
        return self.tables.use(number, ids, mode, phase_of(step), row, tokens)

    def wait(self, number: int, step: StepShape) -> Wait:
        """Returns the words that add up the waits for a layer's experts in the step's phase."""
        return wait_of(self.tables.memory[number].state.words, phase_of(step))

    def use_batch(self, number: int, ids: Span, tokens: int, *, is_first: bool) -> Iterable[Launch]:
        """Returns the launches that fill free slots with experts of a batch, after the batch.

        `ids` are the batch's routes. `is_first` marks the first batch of a prompt.
        """
        miss_mode = _BATCH_MODES[self.prefill_access.access(number)]
        return self.tables.use_batch(number, ids, tokens, is_first=is_first, miss_mode=miss_mode)

    def begin(self, step: StepShape) -> None:
        """Chooses how a batch, or several that run layer by layer, will read missed experts."""
        self.prefill_access.begin({number: self.step(number, step) for number in self.layers})
