"""FileTrial: decides, while a model runs, if slots for experts or the mapped file are faster.

Slots are fixed to layers, and each layer has about as many. The page cache takes what is used,
wherever it is. So where layers use different numbers of experts and all that are used have room in
memory, the mapped file misses less. This is only tried if counts of a window of tokens promise it.
"""

from enum import Enum
from statistics import fmean, median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

WINDOW = 256  # tokens whose counts and times are judged
GAINS = 0.98  # ratio of the file's time to that of slots from which on it is kept
COSTS = 1.02  # the same ratio, above which slots return
_LEAST_STALL = 0.02  # part of the time with slots; with less there is nothing to gain
_FILLED = 0.8  # of the page cache that holds what is used; read-ahead brings the rest
_FAULT_COST = 2.0  # a page fault waits longer than one of eight direct reads
_BLOCK = 32  # tokens; two blocks in a row decide about the file
_MOST_TIME = 576  # of a trial, in times of a token with slots
_REST = 8192  # tokens until the next trial; twice as many after each that failed
_OUTLIER = 4.0  # times the median; longer tokens count as so long


class Way(Enum):
    """The two ways in which experts are reached."""

    SLOTS = "slots"
    FILE = "file"


class WindowCounts(Struct, frozen=True):
    """The counts of a window with slots."""

    stall_seconds: float
    misses: int  # late ones included
    uses: NDArray[np.int64]  # in the window, (layers, experts)
    first_uses: int  # experts that were used for the first time, which any way has to read


class FileTrial:
    """Receives the seconds of decoded tokens; `way` is what the next token should use.

    `expert_bytes` are by layer, (layers,).
    """

    def __init__(self, expert_bytes: NDArray[np.int64]) -> None:
        self._expert_bytes = expert_bytes
        self.way = Way.SLOTS
        self.is_decided = True  # False while the file is only tried
        self.ratio = 1.0  # the file's time over that of slots, as last measured
        self._seconds: list[float] = []
        self._beside = 0.0  # seconds of other steps in the window
        self._with_slots = 0.0  # seconds per token
        self._budget = 0.0  # seconds that are left to the trial
        self._rest, self._next_rest = 0, _REST
        self._faults = self._slow_windows = 0

    @property
    def begins_window(self) -> bool:
        """True if the next token with slots is the first of a window."""
        return not self._seconds

    def add_beside(self, seconds: float) -> None:
        """Adds a step that decoded several tokens, whose waits count, too."""
        self._beside += seconds

    def restart(self) -> None:
        """Forgets the window so far, as something else was tried."""
        self._seconds.clear()
        self._beside = 0.0

    def record(self, seconds: float) -> bool:
        """Records a token with slots; returns True at the end of a window, for `judge_slots`."""
        if self._rest:
            self._rest -= 1
            return False
        self._seconds.append(seconds)
        return len(self._seconds) == WINDOW

    def judge_slots(self, counts: WindowCounts, room: int) -> bool:
        """Begins a trial of the file if the window promises a gain; returns True if it does.

        `room`: bytes that the page cache could take without the slots.
        """
        total = sum(self._seconds) + self._beside
        self._with_slots = _mean(self._seconds)
        self.restart()
        again = max(0, counts.misses - counts.first_uses)  # misses of experts that were evicted
        stalled = counts.stall_seconds * again / max(1, counts.misses)
        outside = uses_outside(counts.uses, self._expert_bytes, int(_FILLED * room))
        if stalled < _LEAST_STALL * total or _FAULT_COST * outside > again:
            return False
        self.way, self.is_decided = Way.FILE, False
        self._budget = _MOST_TIME * self._with_slots
        return True

    def record_file(self, seconds: float, faults: int) -> bool:
        """Records a token with the file; `faults`: pages that it waited for.

        Returns True if that decides.
        """
        self._seconds.append(seconds)
        return self._watch(faults) if self.is_decided else self._try()

    def refuse(self) -> None:
        """Rests, as after a trial that failed."""
        self.way, self.is_decided = Way.SLOTS, True
        self.restart()
        self._rest, self._next_rest = self._next_rest, 2 * self._next_rest

    def _try(self) -> bool:
        """Decides after two fast blocks in a row, or when the trial's time is over."""
        self._budget -= self._seconds[-1]
        if len(self._seconds) % _BLOCK == 0 and len(self._seconds) >= 2 * _BLOCK:
            blocks = self._seconds[-2 * _BLOCK : -_BLOCK], self._seconds[-_BLOCK:]
            self.ratio = max(map(_mean, blocks)) / self._with_slots
            if self.ratio <= GAINS:
                self.is_decided, self._faults = True, 0
                self._seconds.clear()
                return True
        if self._budget > 0:
            return False
        self.refuse()
        return True

    def _watch(self, faults: int) -> bool:
        """Returns to slots after two slow windows in a row that waited for pages.

        Without such waits a token takes longer for another reason, as for a longer context.
        """
        self._faults += faults
        if len(self._seconds) < WINDOW:
            return False
        self.ratio = _mean(self._seconds) / self._with_slots
        is_slow = self.ratio > COSTS and self._faults > WINDOW
        self._slow_windows = self._slow_windows + 1 if is_slow else 0
        self._faults = 0
        self._seconds.clear()
        if self._slow_windows < 2:
            return False
        self._slow_windows = 0
        self.refuse()
        return True


def uses_outside(uses: NDArray[np.int64], expert_bytes: NDArray[np.int64], room: int) -> int:
    """Returns how many uses (layers, experts) are of experts beyond the most used that fit."""
    flat = uses.ravel()
    sizes = np.repeat(expert_bytes, uses.shape[1])
    order = np.argsort(-flat, kind="stable")
    return int(flat[order][np.cumsum(sizes[order]) > room].sum())


def _mean(seconds: list[float]) -> float:
    """Returns the mean, in which a token that another program delayed counts little."""
    most = _OUTLIER * median(seconds)
    return fmean(min(each, most) for each in seconds)
