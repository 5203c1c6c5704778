"""Simple slot policies (lru, lfru), and a fixed set of resident experts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from reference_decayed_frequency import DecayedFrequency
from reference_policy import SlotPolicy

from sharpi.experts.policy_settings import PolicySettings
from sharpi.ops.slot_rules import real


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
