"""SlotBackup: the statistics of all slots before a step that may be discarded.

A discarded step has counted experts for a token that is not used, so the statistics from before the
step are restored. Experts that the step loaded stay in their slots, where they change no logits.
"""

import numpy as np
from numpy.typing import NDArray

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.slot_state import statistics_of


class SlotBackup:
    """Saves and restores the statistics in `words`, the slot states of all layers.

    `words` is int32 (num_layers, words per layer).
    """

    def __init__(self, device: Device, words: Span, num_layers: int) -> None:
        self._device, self._words, self._num_layers = device, words, num_layers
        self._saved = Span(device.allocate(words.num_bytes), 0, words.num_bytes)

    def save(self) -> None:
        """Saves the statistics once all steps so far are done; the host does not wait for them."""
        self._device.copy(self._saved, self._words)

    def restore(self) -> None:
        """Restores the saved statistics, but not which experts have slots; blocks the host."""
        words, saved_words = self._read(self._words), self._read(self._saved)
        for current, saved in zip(words, saved_words, strict=True):
            for part, saved_part in zip(statistics_of(current), statistics_of(saved), strict=True):
                part[:] = saved_part
        self._device.upload(self._words, words)

    def _read(self, span: Span) -> NDArray[np.int32]:
        words = np.empty((self._num_layers, span.num_bytes // 4 // self._num_layers), np.int32)
        self._device.download(span, words)
        return words
