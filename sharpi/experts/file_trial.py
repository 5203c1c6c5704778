"""FileTrial: decides, while a model runs, whether expert slots or the mapped file are faster.

All layers have about the same number of slots, but the page cache holds the most used experts of
any layer. So the mapped file misses less if layers use different numbers of experts and all used
experts fit into memory. A trial of the file starts only if the counts of a window of tokens predict
a gain.
"""

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.slot_window import SlotWindow, WindowCounts, mean_seconds

WINDOW = 256  # tokens whose counts and times are judged
FIRST_WINDOW = 64  # tokens judged at the start, while few have run
_FIRST_TOKENS = 1024  # the first tokens, whose windows are short
GAINS = 0.98  # the file is kept if its time is at most this ratio of the time with slots
COSTS = 1.02  # slots return if the file's time is above this ratio
_BLOCK = 32  # tokens; two blocks in a row decide about the file
_MOST_TOKENS = 512  # the longest trial, in tokens
_PAUSE_TOKENS = 8192  # tokens until the next trial; doubles after each failed trial


class ExpertSource(Enum):
    """The two sources that experts are read from: slots, or the mapped file."""

    SLOTS = "slots"
    FILE = "file"


class FileTrial:
    """Receives the duration of each decoded token; `source` is what the next token should use.

    `expert_bytes` (layers,) has the bytes of one expert of each layer.
    """

    def __init__(self, expert_bytes: NDArray[np.int64]) -> None:
        self.source = ExpertSource.SLOTS
        self.is_decided = True  # False during a trial of the file
        self.ratio = 1.0  # the file's time over that of slots, as last measured
        self._window = SlotWindow(expert_bytes)
        self._in_file: list[float] = []  # seconds of each token with the file
        self._with_slots = 0.0  # seconds per token
        self._seconds_left = 0.0  # seconds that the trial may still take beyond the time with slots
        self._tokens = 0  # tokens with slots so far
        self._pause_left, self._next_pause = 0, _PAUSE_TOKENS
        self._faults = self._slow_windows = 0

    @property
    def begins_window(self) -> bool:
        """True if the next token with slots is the first of a window."""
        return not len(self._window)

    def add_shared_step(self, seconds: float) -> None:
        """Adds the duration of a step that decoded several tokens.

        The counts of a window include the time that such steps waited for experts.
        """
        self._window.add_shared_step(seconds)

    def record(self, seconds: float, *, is_usual: bool = True) -> bool:
        """Records the duration of a token that was decoded with slots.

        Returns True at the end of a window; the caller then calls `judge_slots`. `is_usual` is
        False if the policy tried an alternative setting with this token.
        """
        if self._pause_left:
            self._pause_left -= 1
            return False
        self._tokens += 1
        self._window.add(seconds, is_usual=is_usual)
        return len(self._window) >= (FIRST_WINDOW if self._tokens <= _FIRST_TOKENS else WINDOW)

    def judge_slots(self, counts: WindowCounts, free_bytes: int) -> bool:
        """Starts a trial of the file if the window's counts predict a gain; returns True if so.

        `free_bytes`: bytes that the page cache could use if there were no slots.
        """
        limits = self._window.trial_limits(counts, free_bytes)
        self._window.clear()
        if limits is None:
            return False
        self.source, self.is_decided = ExpertSource.FILE, False
        self._with_slots, self._seconds_left = limits.with_slots, limits.max_extra_seconds
        return True

    def record_file(self, seconds: float, faults: int) -> bool:
        """Records a token that was decoded with the mapped file and had `faults` page faults.

        Returns True if this ended the trial, or if slots are to be used again.
        """
        self._in_file.append(seconds)
        return self._watch(faults) if self.is_decided else self._try()

    def use_slots(self) -> None:
        """Switches back to slots until the next trial is due; also called if a trial fails."""
        self.source, self.is_decided = ExpertSource.SLOTS, True
        self._in_file.clear()
        self._window.clear()
        self._pause_left, self._next_pause = self._next_pause, 2 * self._next_pause

    def _try(self) -> bool:
        """Ends the trial if the file has won or lost; returns True if it ended.

        The file wins with two fast blocks of tokens in a row. The trial also ends when its budget
        of time or tokens is used up.
        """
        self._seconds_left -= self._in_file[-1] - self._with_slots
        tokens = len(self._in_file)
        if tokens % _BLOCK == 0 and tokens >= 2 * _BLOCK:
            blocks = self._in_file[-2 * _BLOCK : -_BLOCK], self._in_file[-_BLOCK:]
            self.ratio = max(map(mean_seconds, blocks)) / self._with_slots
            if self.ratio <= GAINS:
                return self._keep()
        if self._seconds_left > 0 and tokens < _MOST_TOKENS:
            return False
        return self._end()

    def _end(self) -> bool:
        """Ends a trial without two fast blocks in a row; returns True.

        Keeps the file if the trial had its full length and its last tokens took less time than
        tokens with slots.
        """
        self.ratio = mean_seconds(self._in_file[-WINDOW:]) / self._with_slots
        if len(self._in_file) >= _MOST_TOKENS and self.ratio < 1:
            return self._keep()
        self.use_slots()
        return True

    def _keep(self) -> bool:
        self.is_decided, self._faults = True, 0
        self._in_file.clear()
        return True

    def _watch(self, faults: int) -> bool:
        """Switches back to slots after two slow windows in a row with many page faults.

        Returns True if it switched. Tokens without page faults are slow for another reason, such as
        a longer context.
        """
        self._faults += faults
        if len(self._in_file) < WINDOW:
            return False
        self.ratio = mean_seconds(self._in_file) / self._with_slots
        is_slow = self.ratio > COSTS and self._faults > WINDOW
        self._slow_windows = self._slow_windows + 1 if is_slow else 0
        self._faults = 0
        self._in_file.clear()
        if self._slow_windows < 2:
            return False
        self._slow_windows = 0
        self.use_slots()
        return True
