"""LearnedMargin: the gain that a swap has to exceed, steered so that loads meet a budget."""

import numpy as np

_STEERING = np.float32(0.0005)
_FIRST = np.float32(0.15)
_JUDGED, _LOADS_FOR_MISS = 128, 4  # prefetches
_SHRINKS, _GROWS, _LEAST_ALLOWANCE = 0.25, 2.0, 1 / 16


class LearnedMargin:
    """The `value` of the margin, after the loads of each token."""

    def __init__(self, load_budget: float) -> None:
        self.value = _FIRST
        self._budget = np.float32(load_budget)
        self._loads_seen = 0
        self._allowance = 1.0  # the fraction of the budget that prefetches may use
        self._judged = 0, 0, 0  # prefetches used, wasted and saved, at the latest judgement

    def judge(self, used: int, wasted: int, saved: int) -> None:
        """Adapts the fraction of the budget for prefetches to how useful the last ones were."""
        now = used, wasted, saved
        used, wasted, saved = (
            count - before for count, before in zip(now, self._judged, strict=True)
        )
        if used + wasted < _JUDGED:
            return
        self._judged = now
        if saved * _LOADS_FOR_MISS >= used + wasted:
            self._allowance = min(1.0, self._allowance * _GROWS)
        else:
            self._allowance = max(_LEAST_ALLOWANCE, self._allowance * _SHRINKS)

    def steer(self, num_loads: int) -> None:
        """Moves the margin after a token, by all loads so far."""
        excess = np.float32(num_loads - self._loads_seen)
        excess -= self._budget * np.float32(self._allowance)
        self.value = max(np.float32(0), self.value + _STEERING * excess)

    def count(self, num_loads: int) -> None:
        """Sets the loads so far, from which the next token's are counted."""
        self._loads_seen = num_loads
