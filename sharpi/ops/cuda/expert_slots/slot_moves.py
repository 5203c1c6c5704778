"""SlotMoves: moves experts in and out of slots between tokens, as the host decides.

This is for a GPU that cannot read experts from RAM. The host uploads an expert's bytes, and can
first download those of the evicted expert. The policy on the device itself evicts nothing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.slot_memories import SlotMemories

_GATE_UP_DOWN = 3


class SlotMoves:
    """The host's record of which expert is in which slot.

    `upload_residents` copies it to the device.
    """

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
        """Uploads an expert's tensors to the slot of the expert `victim`, which is evicted.

        With None, the expert gets a free slot.
        """
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
