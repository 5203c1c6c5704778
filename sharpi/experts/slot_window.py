"""SlotWindow: estimates, from tokens with expert slots, how much faster the mapped file would be.

The estimate is cheap, as it only needs counts. A trial of the mapped file is expensive, because the
page cache has to be filled first. So the estimated gain has to exceed what a trial may cost.
"""

from statistics import fmean, median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_LEAST_STALL = 0.02  # the least share of the time spent waiting for which a trial is worthwhile
# The largest share of misses that are first uses. Above it slots are still filling, so that times
# say little.
_FIRST_USES = 0.25
_FILLED = 0.8  # the share of the page cache that holds used experts; read-ahead fills the other
_FAULT_COST = 2.0  # how much longer a page fault waits than one of eight direct reads
# A trial may cost 1.25 times what it takes to fill the page cache, and has to gain as much within
# 2000 tokens.
_FILLS, _TOKENS_TO_GAIN = 1.25, 2000
_MIN_TRIAL_TOKENS = 20  # the least that a trial may cost, in tokens
_LEAST_TRIED = 16  # tokens with an alternative setting of the policy before their times count
_OUTLIER = 4.0  # tokens longer than this many medians count as that long


class WindowCounts(Struct, frozen=True):
    """The counts of misses, waits and uses in a window of tokens that were decoded with slots."""

    stall_seconds: float
    misses: int  # including late ones
    loads: int  # misses that were not late
    uses: NDArray[np.int64]  # in the window, (layers, experts)
    all_uses: NDArray[np.int64]  # since the start, (layers, experts)
    first_uses: int  # experts used for the first time; slots and mapped file both have to read them

    @classmethod
    def between(
        cls,
        before: tuple[float, int, int],
        now: tuple[float, int, int],
        uses_before: NDArray[np.int64],
        uses: NDArray[np.int64],
    ) -> "WindowCounts":
        """Returns the counts between two moments, from running totals at each of them.

        `before` and `now` have the seconds that tokens waited, the late experts, and the loads.
        `uses_before` and `uses` are (layers, experts).
        """
        stall, late, loads = now[0] - before[0], now[1] - before[1], now[2] - before[2]
        first_uses = int(((uses_before == 0) & (uses > 0)).sum())
        return cls(stall, late + loads, loads, uses - uses_before, uses, first_uses)

    @property
    def misses_again(self) -> int:
        """The misses of experts that had been used before, and so had been evicted."""
        return max(0, self.misses - self.first_uses)

    @property
    def stalled_again(self) -> float:
        """The seconds that tokens waited for experts that had been evicted."""
        return self.stall_seconds * self.misses_again / max(1, self.misses)

    @property
    def fill_seconds(self) -> float:
        """The estimated seconds in which page faults would read all experts used so far."""
        used = int((self.all_uses > 0).sum())
        return used * _FAULT_COST * self.stall_seconds / max(1, self.loads)


class TrialLimits(Struct, frozen=True):
    """The limits of a trial of the mapped file that is expected to gain more than it costs."""

    with_slots: float  # seconds per token
    max_extra_seconds: float  # seconds that the trial may take in addition to the time with slots


class SlotWindow:
    """The durations of the latest tokens with slots, and the estimate that follows from them.

    `expert_bytes` (layers,) has the bytes of one expert of each layer.
    """

    def __init__(self, expert_bytes: NDArray[np.int64]) -> None:
        self._expert_bytes = expert_bytes
        self._usual: list[float] = []
        self._tried: list[float] = []  # seconds of tokens in which the policy tried something
        self._shared_seconds = 0.0  # seconds of steps that decoded several tokens

    def __len__(self) -> int:
        return len(self._usual) + len(self._tried)

    def add(self, seconds: float, *, is_usual: bool) -> None:
        """Adds a token; `is_usual` is False if the policy tried an alternative setting with it."""
        (self._usual if is_usual else self._tried).append(seconds)

    def add_shared_step(self, seconds: float) -> None:
        """Adds the duration of a step that decoded several tokens.

        The counts of a window include the time that such steps waited for experts.
        """
        self._shared_seconds += seconds

    def clear(self) -> None:
        """Starts a new window: forgets all durations."""
        self._usual.clear()
        self._tried.clear()
        self._shared_seconds = 0.0

    def trial_limits(self, counts: WindowCounts, free_bytes: int) -> TrialLimits | None:
        """Returns what a trial of the mapped file may cost; None if the expected gain is too small.

        `free_bytes`: bytes that the page cache could use if there were no slots.
        """
        total = sum(self._usual) + sum(self._tried) + self._shared_seconds
        stalled = counts.stalled_again / total
        # Slots and file both have to wait for experts that are used for the first time.
        steady = max(0.0, 1 + stalled - counts.stall_seconds / total)
        with_slots = self._fastest() * steady
        max_extra_seconds = max(_FILLS * counts.fill_seconds, _MIN_TRIAL_TOKENS * with_slots)
        gain = stalled * self._kept(counts, free_bytes) * _TOKENS_TO_GAIN * with_slots
        still_fills = counts.first_uses > _FIRST_USES * counts.misses
        if still_fills or stalled < _LEAST_STALL or gain <= max_extra_seconds:
            return None
        return TrialLimits(with_slots, max_extra_seconds)

    def _kept(self, counts: WindowCounts, free_bytes: int) -> float:
        """Returns the share of the time spent waiting that the mapped file would save, 0 to 1."""
        fitting = int(_FILLED * free_bytes)
        outside = uses_outside(counts.uses, self._expert_bytes, fitting, counts.all_uses)
        return max(0.0, 1 - _FAULT_COST * outside / max(1, counts.misses_again))

    def _fastest(self) -> float:
        """Returns the seconds per token with the faster of the settings that the policy tried."""
        has_both = len(self._tried) >= _LEAST_TRIED and bool(self._usual)
        settings = (self._usual, self._tried) if has_both else (self._usual or self._tried,)
        return min(map(mean_seconds, settings))


def uses_outside(
    uses: NDArray[np.int64],
    expert_bytes: NDArray[np.int64],
    cache_bytes: int,
    all_uses: NDArray[np.int64] | None = None,
) -> int:
    """Returns how many of the `uses` (layers, experts) are of experts outside a cache of experts.

    The cache has `cache_bytes` bytes and holds the most used experts. These are chosen by
    `all_uses` if given, because a short window shows only some of the uses.
    """
    flat = uses.ravel()
    sizes = np.repeat(expert_bytes, uses.shape[1])
    order = np.argsort(-(flat if all_uses is None else all_uses.ravel()), kind="stable")
    return int(flat[order][np.cumsum(sizes[order]) > cache_bytes].sum())


def mean_seconds(seconds: list[float]) -> float:
    """Returns the mean; longer times than 4 medians count as 4 medians.

    Such outliers may come from other programs that delayed a token.
    """
    most = _OUTLIER * median(seconds)
    return fmean(min(each, most) for each in seconds)
