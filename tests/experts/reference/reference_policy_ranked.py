"""Simple slot policies for comparison (lru, lfu, lfru), and a fixed set of resident experts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from reference_decayed_frequency import DecayedFrequency
from reference_policy import SlotPolicy
from reference_policy_slots import LayerSlots

from sharpi.experts.policy_settings import PolicyKind, PolicySettings

_VLLM_GROWTH = np.float32(1 / 0.95)  # each later token takes 5 % off the weight of a use


class Ranked(SlotPolicy):
    """Evicts the expert with the lowest rank.

    lru ranks by the time of the last use, lfu by the number of uses since the start, and lfru-total
    by that number divided by the time since the last use.
    """

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        """Does nothing: the base class already keeps recency and counts."""

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Does nothing: the base class already keeps recency and counts."""

    def _priority(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].access_count[expert])

    def _victim(self, layer: int) -> int:
        return self.layers[layer].least(self._keys(self.layers[layer]))

    def _keys(self, slots: LayerSlots) -> NDArray[np.float32]:
        uses = slots.access_count.astype(np.float32)
        if self.settings.kind is PolicyKind.LRU:
            return np.zeros_like(uses)
        if self.settings.kind is PolicyKind.LFU:
            return uses
        ages = (1 + slots.clock - slots.last_used).astype(np.float32)
        return np.divide(uses, ages, dtype=np.float32)


class Lfru(SlotPolicy):
    """Evicts the expert with the fewest recent uses divided by the time since its last use.

    Old uses count less, as in vLLM.
    """

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._frequency = [
            DecayedFrequency(settings.num_experts, _VLLM_GROWTH) for _ in settings.slots
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
