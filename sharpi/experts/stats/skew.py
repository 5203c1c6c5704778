"""Skew: how unevenly the batches of prompts used experts, and the least capacity factor for them.

The capacity factor sizes the buffer rows for routed tokens on a GPU.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.stats.stats import SkewStats
from sharpi.ops.routed_capacity import LEAST_TOKENS, experts_at_once, rows_of_batch

# A factor of 1 is always enough.
_FACTORS = tuple(percent / 100 for percent in range(1, 101))


class Skew:
    """Collects the routes of prompts, in batches of at most `batch_size` tokens."""

    def __init__(self, num_experts: int, batch_size: int) -> None:
        self._num_experts, self._batch_size = num_experts, batch_size
        self._sufficient = list(_FACTORS)  # factors that sufficed for all batches so far
        self._num_batches = 0
        self._busiest = 0.0

    def add(self, routes: Sequence[NDArray[np.integer]]) -> None:
        """Adds a prompt's routes: for each layer an array (tokens, experts per token).

        A layer that is computed only for some tokens has fewer rows.
        """
        num_tokens = max(map(len, routes), default=0)
        for first in range(0, num_tokens, self._batch_size):
            self._num_batches += 1
            for ids in routes:
                self._add(ids[first : first + self._batch_size])

    def _add(self, ids: NDArray[np.integer]) -> None:
        """Adds a layer's routes in one batch; ignores batches that fit with any capacity factor."""
        if len(ids) < LEAST_TOKENS:
            return
        counts = np.bincount(ids.ravel(), minlength=self._num_experts)
        self._busiest = max(self._busiest, float(counts.max()) * self._num_experts / ids.size)
        sums = np.concatenate([[0], np.cumsum(counts)])
        self._sufficient = [
            factor for factor in self._sufficient if self._suffices(factor, sums, ids.shape[1])
        ]

    def _suffices(self, factor: float, sums: NDArray[np.integer], used: int) -> bool:
        """Returns True if the buffer rows of a capacity factor suffice for a batch.

        `sums` (experts + 1,) are cumulative numbers of routed tokens. The rows have to fit the
        tokens of each group of adjacent experts that are computed together.
        """
        width = experts_at_once(factor, self._num_experts)
        most = int((sums[width:] - sums[:-width]).max())
        return most <= rows_of_batch(factor, self._batch_size, used)

    @property
    def stats(self) -> SkewStats | None:
        """The result so far; None until a batch of more than a few tokens was added."""
        if not self._busiest:
            return None
        return SkewStats(self._num_batches, self._sufficient[0], self._busiest)
