"""Uses that count half after some tokens, kept for experts without a slot too."""

from collections.abc import Sequence

import numpy as np

HALF_LIFE = 16  # tokens
_GROWTH = np.float32(2 ** (1 / HALF_LIFE))
_LARGEST = np.float32(1 << 20)


class DecayedFrequency:
    """Nothing is touched to decay: a new use weighs more instead, and only ratios matter."""

    def __init__(self, num_experts: int) -> None:
        self.counts = np.zeros(num_experts, np.float32)
        self._weight = np.float32(1)

    def use(self, experts: Sequence[int]) -> None:
        """One token's experts of this layer."""
        self._weight *= _GROWTH
        if self._weight >= _LARGEST:
            self.counts *= np.float32(1) / self._weight
            self._weight = np.float32(1)
        for expert in experts:
            self.counts[expert] += self._weight
