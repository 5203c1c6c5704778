"""Slru: a segmented LRU policy that evicts the expert with the fewest recent uses.

Part of the slots is the probationary segment, which new experts enter. A hit promotes an
expert to the protected segment, where its uses count more. If that segment is full, its oldest
unpinned expert is demoted.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from reference_decayed_frequency import DecayedFrequency
from reference_policy import SlotPolicy

from sharpi.experts.policy_settings import PolicySettings
from sharpi.ops.slot_rules import real, whole

_PROTECTION = np.float32(real("Protection"))


class Slru(SlotPolicy):
    """The segmented LRU policy in Python, the reference implementation for slru.h in C++."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        shape = (settings.num_layers, settings.num_experts)
        self._protected = np.zeros(shape, bool)
        self._frequency = [
            DecayedFrequency(settings.num_experts, np.float32(real("SlruGrowth")))
            for _ in settings.slots
        ]

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        self._frequency[layer].use(experts)
        for expert in experts:
            if self.resident(layer, expert):
                self._promote(layer, expert)

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        for route in routes.tolist():
            self._frequency[layer].use(route)

    def _priority(self, layer: int, expert: int) -> float:
        return float(self._frequency[layer].counts[expert])

    def _promote(self, layer: int, expert: int) -> None:
        is_protected, num_slots = self._protected[layer], self.layers[layer].num_slots
        if is_protected[expert]:
            return
        is_protected[expert] = True
        if is_protected.sum() > num_slots - max(1, num_slots // whole("ProbationaryPart")):
            self._demote_oldest(layer, expert)

    def _demote_oldest(self, layer: int, promoted: int) -> None:
        slots, is_protected = self.layers[layer], self._protected[layer]
        unpinned = np.flatnonzero(is_protected & ~slots.pinned).tolist()
        others = [expert for expert in unpinned if expert != promoted]
        if others:
            oldest = min(others, key=lambda e: (slots.stamp[e], e))
            is_protected[oldest] = False
            slots.stamp[oldest] = slots.clock

    def _victim(self, layer: int) -> int:
        counts, is_protected = self._frequency[layer].counts, self._protected[layer]
        weighted = np.where(is_protected, _PROTECTION * counts, counts)
        return self.layers[layer].least(weighted)

    def _admits(self, layer: int, expert: int, victim: int) -> bool:
        counts = self._frequency[layer].counts
        return not self.settings.admission or bool(counts[expert] > counts[victim])

    def _inserted(self, layer: int, expert: int) -> None:
        if self.layers[layer].pinned[expert]:
            self._promote(layer, expert)

    def _evicted(self, layer: int, expert: int) -> None:
        self._protected[layer, expert] = False

    def _was_pinned(self, layer: int, expert: int) -> None:
        self._promote(layer, expert)
