"""LearnedMargin: the gain that a swap has to exceed, adapted so that loads meet a budget."""

import numpy as np

from sharpi.ops.slot_rules import real, whole

_MARGIN_RATE = np.float32(real("MarginRate"))


class LearnedMargin:
    """The margin, adapted after each token; `value` is the current one."""

    def __init__(self, load_budget: float) -> None:
        self.value = np.float32(real("FirstMargin"))
        self._budget = np.float32(load_budget)
        self._loads_seen = 0
        self._allowance = 1.0  # the fraction of the budget that prefetches may use
        self._last_counts = 0, 0, 0  # prefetches used, wasted and saved, at the last change

    def adapt_allowance(self, used: int, wasted: int, saved: int) -> None:
        """Adapts the share of the budget that prefetches may use to how many of them were useful.

        The arguments are running totals: prefetches used, prefetches wasted, and misses saved.
        """
        now = used, wasted, saved
        used, wasted, saved = (
            count - before for count, before in zip(now, self._last_counts, strict=True)
        )
        if used + wasted < whole("PrefetchesPerChange"):
            return
        self._last_counts = now
        if saved * whole("LoadsForMiss") >= used + wasted:
            self._allowance = min(1.0, self._allowance * real("AllowanceGrows"))
        else:
            self._allowance = max(
                real("LeastAllowance"), self._allowance * real("AllowanceShrinks")
            )

    def adapt(self, num_loads: int) -> None:
        """Adapts the margin after a token; `num_loads` is the total number of loads so far."""
        excess = np.float32(num_loads - self._loads_seen)
        excess -= self._budget * np.float32(self._allowance)
        self.value = max(np.float32(0), self.value + _MARGIN_RATE * excess)

    def count(self, num_loads: int) -> None:
        """Sets the total number of loads from which the next token's loads are counted."""
        self._loads_seen = num_loads
