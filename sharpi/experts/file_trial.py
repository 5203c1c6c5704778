"""FileTrial: decides, while a model runs, whether expert slots or the mapped file are faster.

All layers have about the same number of slots, but the page cache holds the most used experts of
any layer. So the mapped file misses less if layers use different numbers of experts and all used
experts fit into memory. Slots and file cannot take turns, because the page cache has to be filled
first, which is expensive. So a trial starts only if the counts of a window of tokens, which are
cheap, predict that it gains more than it may cost.
"""

from collections.abc import Generator
from enum import Enum
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.trial import MARGIN, MAX_PAUSE, TRIAL_TOKENS, Tokens, Trial, mean_seconds

FIRST_WINDOW = TRIAL_TOKENS  # tokens with slots judged at the start, while few have run
WINDOW = 4 * TRIAL_TOKENS  # tokens whose counts and times are judged later
_FIRST_TOKENS = 4 * WINDOW  # the first tokens, whose windows are short
_BLOCK = TRIAL_TOKENS // 2  # two fast blocks in a row decide for the file
_MOST_TOKENS = 2 * WINDOW  # of the longest trial
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


class ExpertSource(Enum):
    """The two sources that experts are read from: slots, or the mapped file."""

    SLOTS = "slots"
    FILE = "file"


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


class Counters(Protocol):
    """Counts what happens to the tokens of a window."""

    def begin_window(self) -> None:
        """Begins to count anew."""

    def window(self) -> tuple[WindowCounts, int]:
        """Returns the counts, and the bytes that the page cache could use without slots."""


class FileTrial(Trial[ExpertSource]):
    """Receives the duration of each decoded token; `choice` is what the next token should use.

    `expert_bytes` (layers,) has the bytes of one expert of each layer. The option `fastest` is the
    source in use, also while a trial of the file runs.
    """

    def __init__(self, expert_bytes: NDArray[np.int64], counters: Counters) -> None:
        self._window, self._counters = SlotWindow(expert_bytes), counters
        self._num_with_slots = self._faults = 0
        self._is_usual = True
        self._pause = MAX_PAUSE  # tokens until the next trial; doubles after each failed trial
        super().__init__(tuple(ExpertSource), default=ExpertSource.SLOTS)

    def add_shared_step(self, seconds: float) -> None:
        """Adds the duration of a step of several tokens, whose waits a window's counts hold."""
        self._window.add_shared_step(seconds)

    def record(self, seconds: float, *, is_usual: bool = True, faults: int = 0) -> bool:
        """Records a token's seconds; returns True if this ended a trial of the file, or its use.

        `is_usual` is False if the policy tried an alternative setting with this token. `faults`:
        the token's page faults.
        """
        was_settled, before = self.is_settled, self.choice
        self._is_usual = is_usual
        self._faults += faults
        super().record(seconds)
        is_back = before is ExpertSource.FILE and self.choice is ExpertSource.SLOTS
        return self.is_settled and (not was_settled or is_back)

    def use_file(self) -> None:
        """Switches to the file without a trial."""
        self._tokens = self._all_tokens(in_file=True)
        self.choice = next(self._tokens)

    @property
    def file_ratio(self) -> float:
        """The seconds of a token with the file in times of those with slots, as last measured."""
        return self.ratio(ExpertSource.FILE, ExpertSource.SLOTS)

    def _all_tokens(self, *, in_file: bool = False) -> Tokens[ExpertSource]:
        while True:
            if in_file or (yield from self._try_file((yield from self._find_gain()))):
                yield from self._use_file()
            in_file, self.fastest, self.is_settled = False, ExpertSource.SLOTS, True
            for _ in range(self._pause):
                yield ExpertSource.SLOTS
            self._pause *= 2

    def _find_gain(self) -> Generator[ExpertSource, float, "TrialLimits"]:
        """Uses slots until a window's counts predict a gain; returns the limits of a trial."""
        self.is_settled = True
        while True:
            self._window.clear()
            while len(self._window) < (
                FIRST_WINDOW if self._num_with_slots <= _FIRST_TOKENS else WINDOW
            ):
                seconds = yield ExpertSource.SLOTS
                if not len(self._window):
                    self._counters.begin_window()
                self._num_with_slots += 1
                self._window.add(seconds, is_usual=self._is_usual)
            limits = self._window.trial_limits(*self._counters.window())
            if limits is not None:
                return limits

    def _try_file(self, limits: "TrialLimits") -> Generator[ExpertSource, float, bool]:
        """Returns True if two blocks in a row are fast, or the last tokens of a whole trial."""
        self.is_settled = False
        self.seconds[ExpertSource.SLOTS] = limits.with_slots
        times, left = list[float](), limits.max_extra_seconds
        while left > 0 and len(times) < _MOST_TOKENS:
            times.append((yield ExpertSource.FILE))
            left -= times[-1] - limits.with_slots
            if len(times) % _BLOCK == 0 and len(times) >= 2 * _BLOCK:
                blocks = times[-2 * _BLOCK : -_BLOCK], times[-_BLOCK:]
                self.seconds[ExpertSource.FILE] = max(map(mean_seconds, blocks))
                if self.file_ratio * MARGIN <= 1:
                    return True
        self.seconds[ExpertSource.FILE] = mean_seconds(times[-WINDOW:])
        return len(times) >= _MOST_TOKENS and self.file_ratio < 1

    def _use_file(self) -> Tokens[ExpertSource]:
        """Uses the file until two windows in a row are slow and have many page faults."""
        self.fastest, self.is_settled = ExpertSource.FILE, True
        num_slow = 0
        while num_slow < 2:
            self._faults, times = 0, list[float]()
            while len(times) < WINDOW:
                times.append((yield ExpertSource.FILE))
            self.seconds[ExpertSource.FILE] = mean_seconds(times)
            is_slow = self.file_ratio > MARGIN and self._faults > WINDOW
            num_slow = num_slow + 1 if is_slow else 0


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
        """Adds the duration of a step of several tokens, whose waits a window's counts hold."""
        self._shared_seconds += seconds

    def clear(self) -> None:
        """Starts a new window: forgets all durations."""
        self._usual.clear()
        self._tried.clear()
        self._shared_seconds = 0.0

    def trial_limits(self, counts: WindowCounts, free_bytes: int) -> TrialLimits | None:
        """Returns what a trial may cost, None for too small a gain; `free_bytes` without slots."""
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
