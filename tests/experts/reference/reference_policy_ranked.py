"""Slot policies that rank experts by their uses (slru, lru, lfru), and a fixed set of experts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from reference_policy import SlotPolicy

from sharpi.experts.policy_settings import PolicySettings
from sharpi.ops.slot_rules import real, whole

_LARGEST = np.float32(real("LargestWeight"))


class DecayedFrequency:
    """The use counts of one layer's experts.

    It is the reference implementation for kernels/cpu/experts/policy/policy_frequency.h. `growth`:
    the weight of a use relative to a use one token earlier.
    """

    def __init__(self, num_experts: int, growth: np.float32) -> None:
        self.counts = np.zeros(num_experts, np.float32)
        self._growth = growth
        self._weight = np.float32(1)

    def use(self, experts: Sequence[int]) -> None:
        """Counts the experts that one token uses in this layer."""
        self._weight *= self._growth
        if self._weight >= _LARGEST:
            self.counts *= np.float32(1) / self._weight
            self._weight = np.float32(1)
        for expert in experts:
            self.counts[expert] += self._weight


class Lru(SlotPolicy):
    """Evicts the least recently used expert."""

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        """Does nothing: the base class already keeps recency and counts."""

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Does nothing: the base class already keeps recency and counts."""

    def _priority(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].access_count[expert])

    def _victim(self, layer: int) -> int:
        return self.layers[layer].least(np.zeros(self.settings.num_experts, np.float32))


class Lfru(SlotPolicy):
    """Evicts the expert with the fewest recent uses divided by the time since its last use.

    Old uses count less, as in vLLM.
    """

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._frequency = [
            DecayedFrequency(settings.num_experts, np.float32(real("LfruGrowth")))
            for _ in settings.slots
        ]

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        self._frequency[layer].use(experts)

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        for route in routes.tolist():
            self._frequency[layer].use(route)

    def _priority(self, layer: int, expert: int) -> float:
        return float(self._frequency[layer].counts[expert])

    def _victim(self, layer: int) -> int:
        counts, slots = self._frequency[layer].counts, self.layers[layer]
        ages = np.float32(1) + (slots.clock - slots.last_used).astype(np.float32)
        return slots.least(counts / ages)


class Static(SlotPolicy):
    """Keeps only the pinned experts resident; other slots stay free.

    With `warm_pin`, the set is replaced at certain times by the experts that were used most.
    """

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        """Does nothing: uses never change the set."""

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Does nothing: uses never change the set."""

    def _priority(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].pinned[expert])

    def _victim(self, layer: int) -> int:
        if not self.settings.warm_pin:
            return -1
        slots = self.layers[layer]
        return slots.least(slots.access_count.astype(np.float32))

    def _admits(self, layer: int, expert: int, victim: int) -> bool:
        return False

    def _may_take_free(self, layer: int, expert: int) -> bool:
        return self.settings.warm_pin > 0 or bool(self.layers[layer].pinned[expert])


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
