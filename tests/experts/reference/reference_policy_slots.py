"""One layer's slots: which experts are resident, pinned or in use, and their recency and uses."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
        return int(np.count_nonzero(self.resident)) < self.num_slots

    def begin_use(self, experts: Sequence[int]) -> None:
        """Counts the use of `experts` by a token or batch, and marks them as in use.

        An expert that occurs several times is counted several times.
        """
        self.clock += 1
        self.is_active = True
        for expert in experts:
            self.last_used[expert] = self.stamp[expert] = self.clock
            self.access_count[expert] += 1

    def least(self, keys: NDArray[np.float32]) -> int:
        """Returns the expert with the lowest key among those that may be evicted; -1 if none may.

        `keys` (experts,). Ties go to the least recently used expert, then to the lowest id.
        """
        may_leave = self.resident & ~self.pinned
        if self.is_active:
            may_leave &= self.last_used != self.clock
        (leaving,) = may_leave.nonzero()
        if not len(leaving):
            return -1
        lowest = leaving[keys[leaving] == keys[leaving].min()]
        return int(lowest[self.stamp[lowest].argmin()])
