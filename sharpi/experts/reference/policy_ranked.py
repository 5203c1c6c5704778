"""The plain policies, kept for comparison, and the fixed set, which never changes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.policy_settings import PolicyKind
from sharpi.experts.reference.policy import SlotPolicy


class Ranked(SlotPolicy):
    """Ranks experts by one number.

    lru evicts the oldest expert, lfu the one with fewest uses ever, lfru the one with fewest uses
    for its age.
    """

    def _touched(self, layer: int, experts: Sequence[int]) -> None:
        """Does nothing: recency and counts are kept for every policy."""

    def _touched_batch(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Does nothing: recency and counts are kept for every policy."""

    def _worth(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].access_count[expert])

    def _victim(self, layer: int) -> int:
        return self.layers[layer].least(lambda expert: self._key(layer, expert))

    def _key(self, layer: int, expert: int) -> np.float32:
        if self.settings.kind is PolicyKind.LRU:
            return np.float32(0)
        slots = self.layers[layer]
        uses = np.float32(slots.access_count[expert])
        if self.settings.kind is PolicyKind.LFU:
            return uses
        return np.float32(uses / np.float32(1 + slots.clock - slots.last_used[expert]))


class Static(SlotPolicy):
    """Keeps the pinned experts as the whole set; free slots stay free."""

    def _touched(self, layer: int, experts: Sequence[int]) -> None:
        """Does nothing: uses never change the set."""

    def _touched_batch(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Does nothing: uses never change the set."""

    def _worth(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].pinned[expert])

    def _victim(self, layer: int) -> int:
        return -1

    def _may_take_free(self, layer: int, expert: int) -> bool:
        return bool(self.layers[layer].pinned[expert])
