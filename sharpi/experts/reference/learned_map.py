"""One layer's linear map from recently used experts to scores: the discounted time to next use.

float32 multiplications and additions happen in the written order; the native map rounds alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_DISCOUNT = np.float32(0.8)
_BIAS_RATE = np.float32(0.003)
_FIRST_BIAS = np.float32(0.1)


class MapInput(NamedTuple):
    """A source expert as a row of the map, and the weight of its rank."""

    row: int
    weight: np.float32


class LearnedMap:
    """The reference of kernels/cpu/experts/policy/learned_map.h; `scores` are (experts) float32."""

    def __init__(self, num_sources: int, num_experts: int, rate: np.float32) -> None:
        self.scores: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self._weights = np.zeros((num_sources * num_experts, num_experts), np.float32)
        self._bias = np.full(num_experts, _FIRST_BIAS)
        self._previous = np.zeros(num_experts, np.float32)
        self._rate = rate

    def score(self, inputs: Sequence[MapInput]) -> None:
        """Computes the scores from `inputs` into `scores`."""
        self.scores = self._bias.copy()
        for row, weight in inputs:
            self.scores += weight * self._weights[row]

    def learn(self, inputs: Sequence[MapInput], used: Sequence[int]) -> None:
        """Moves the previous scores, computed from `inputs`, towards the experts used since.

        The target is 1 for the experts used and the discounted present score for the others.
        """
        error = _DISCOUNT * np.clip(self.scores, np.float32(0), np.float32(1))
        error[list(used)] = 1
        error -= self._previous
        self._bias += _BIAS_RATE * error
        for row, weight in inputs:
            self._weights[row] += (self._rate * weight) * error

    def keep(self) -> None:
        """Keeps the present scores as the ones to learn from next."""
        self._previous = self.scores.copy()
