"""PastSlots: the counts and statistics of RAM slots that were given up for the mapped file."""

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.native.store_counts import StoreCounts
from sharpi.experts.stats.slot_periods import merge_slot_periods
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import MappedUses, RunFacts


class PastSlots:
    """Sums the counts and statistics of RAM slots each time that a tier gives them up.

    `uses` (layers, experts) has the number of tokens that used each expert. `counts` has an entry
    for each layer, and is empty until slots were given up.
    """

    def __init__(self, num_layers: int, num_experts: int) -> None:
        self.uses = np.zeros((num_layers, num_experts), np.int64)
        self.counts: list[StoreCounts] = []
        self._stats: list[ExpertStats] = []

    def add(self, uses: NDArray[np.int64], counts: list[StoreCounts], stats: ExpertStats) -> None:
        """Adds the uses, counts by layer, and statistics of slots that are being given up."""
        self.uses, self.counts = self.uses + uses, self.with_present(counts)
        self._stats.append(stats)

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Each layer's experts, the most used first."""
        order = np.argsort(-self.uses, axis=1, kind="stable").tolist()
        return tuple(map(tuple, order))

    def with_present(self, counts: list[StoreCounts]) -> list[StoreCounts]:
        """Returns the sums for each layer, with the counts of the present slots added."""
        if not self.counts:
            return counts
        pairs = zip(counts, self.counts, strict=True)
        return [StoreCounts(*map(sum, zip(*pair, strict=True))) for pair in pairs]

    def stats(
        self, present: ExpertStats | None, run: RunFacts, mapped: MappedUses | None
    ) -> ExpertStats:
        """Returns one set of statistics for all slots; `present` is None while no slots exist.

        `mapped` has the lookups in the mapped file.
        """
        if not self._stats and present is not None:
            return present
        return merge_slot_periods([*self._stats, *filter(None, [present])], run, mapped)
