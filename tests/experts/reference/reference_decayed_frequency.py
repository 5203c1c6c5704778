"""DecayedFrequency: counts of experts' uses in which recent uses count more.

Only the ratios of these counts have a meaning.
"""

from collections.abc import Sequence

import numpy as np

from sharpi.ops.slot_rules import real

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
