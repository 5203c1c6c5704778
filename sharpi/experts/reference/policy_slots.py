"""One layer's slots: which experts are resident, pinned or in use, and their recency and uses."""

from collections.abc import Callable, Sequence

import numpy as np


class LayerSlots:
    """The state of one layer's slots and experts.

    It is the reference implementation for kernels/cpu/experts/policy/policy_slots.h.
    """

    def __init__(self, num_experts: int, num_slots: int) -> None:
        self.num_slots = min(num_slots, num_experts)
        self.clock = 0  # how often the layer was used
        self.is_active = False  # a token's experts are in use until it ends
        self.resident = np.zeros(num_experts, bool)
        self.pinned = np.zeros(num_experts, bool)
        self.last_used = np.full(num_experts, -1)
        self.stamp = np.full(num_experts, -1)  # order of recency; demotion renews the stamp, too
        self.access_count = np.zeros(num_experts, np.int64)

    @property
    def has_free(self) -> bool:
        return int(self.resident.sum()) < self.num_slots

    def begin_use(self, experts: Sequence[int]) -> None:
        """Counts the use of `experts` by a token or batch, and marks them as in use.

        An expert that occurs several times is counted several times.
        """
        self.clock += 1
        self.is_active = True
        for expert in experts:
            self.last_used[expert] = self.stamp[expert] = self.clock
            self.access_count[expert] += 1

    def in_use(self, expert: int) -> bool:
        return self.is_active and bool(self.last_used[expert] == self.clock)

    def least(self, key: Callable[[int], np.float32]) -> int:
        """Returns the expert with the lowest `key` among those that may be evicted; -1 if none may.

        Ties go to the least recently used expert, then to the lowest id.
        """
        free = (each for each in np.flatnonzero(self.resident & ~self.pinned))
        leaving = [int(expert) for expert in free if not self.in_use(int(expert))]
        return min(leaving, key=lambda e: (key(e), self.stamp[e], e), default=-1)
