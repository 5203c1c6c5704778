"""SlotWords: the states of all layers' slots on a device, with methods that read them."""

from collections.abc import Collection
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.slot_backup import SlotBackup
from sharpi.ops.cuda.expert_slots.slot_state import (
    PhaseSlotCounts,
    SlotCounts,
    SlotStates,
    counts_of,
    num_slots_of,
    state_bytes,
    states_of,
)


class SlotWords:
    """The slot states of the layers with numbers `layers`; the `read_` methods block the host."""

    def __init__(self, device: Device, num_experts: int, layers: Collection[int]) -> None:
        self._device, self._layers = device, tuple(layers)
        self._num_bytes = state_bytes(num_experts)
        num_bytes = len(layers) * self._num_bytes
        self._span = Span(device.allocate(num_bytes), 0, num_bytes)

    def of(self, layer: int) -> Span:
        """Returns the memory of one layer's slot state."""
        return self._span.part(self._layers.index(layer) * self._num_bytes, self._num_bytes)

    @cached_property
    def backup(self) -> SlotBackup:
        """A backup of the statistics, for a step that may be discarded."""
        return SlotBackup(self._device, self._span, len(self._layers))

    def read_counts(self) -> dict[int, SlotCounts]:
        """Reads the statistics of every layer, summed over both phases, by layer number."""
        return {layer: counts.total for layer, counts in self.read_phases().items()}

    def read_phases(self) -> dict[int, PhaseSlotCounts]:
        """Reads the statistics of every layer by phase."""
        return {layer: counts_of(words) for layer, words in self._read().items()}

    def read_states(self) -> dict[int, SlotStates]:
        """Reads the slots, pins and uses of all experts."""
        return {layer: states_of(words) for layer, words in self._read().items()}

    def read_num_slots(self) -> dict[int, int]:
        """Reads the current number of slots of every layer."""
        return {layer: num_slots_of(words) for layer, words in self._read().items()}

    def _read(self) -> dict[int, NDArray[np.int32]]:
        words = np.empty((len(self._layers), self._num_bytes // 4), np.int32)
        self._device.download(self._span, words)
        return dict(zip(self._layers, words, strict=True))
