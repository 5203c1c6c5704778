"""RecentUses: decayed counts of each expert's uses, as inputs of a layer's map.

There are two counts with different rates of decay, each with a learned weight per expert.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.ops.slot_rules import real

# The fraction of a count that remains after one token, for both time spans.
_KEPT = np.array([[real("KeptOfShortSpan")], [real("KeptOfLongSpan")]], np.float32)
_RATE = np.float32(real("RecentRate"))


class RecentUses:
    """The counts and weights of one layer.

    It is the reference implementation for kernels/cpu/experts/policy/recent_uses.h.
    """

    def __init__(self, num_experts: int) -> None:
        self._weights = np.zeros((len(_KEPT), num_experts), np.float32)
        self._counts = np.zeros_like(self._weights)
        self._previous = np.zeros_like(self._weights)

    def count(self, used: Sequence[int]) -> None:
        """Counts the experts that one more token used."""
        self._previous = self._counts
        self._counts = _KEPT * self._counts
        self._counts[:, list(used)] += np.float32(1) - _KEPT

    def add_to(self, scores: NDArray[np.float32]) -> None:
        """Adds the counts multiplied by their weights to `scores` (experts,)."""
        for weights, counts in zip(self._weights, self._counts, strict=True):
            scores += weights * counts

    def follow(self, error: NDArray[np.float32]) -> None:
        """Adapts the weights by the `error` (experts,) of the scores before the last `count`."""
        self._weights += _RATE * (error * self._previous)
