"""Pause: makes searches for drafts rarer after several that found no draft worth a check."""

_MOST_VAIN = 2  # successive searches that were not worth their time
_SHARE = 0.002  # the part of the time that vain searches may take on average
_LONGEST = 512  # the longest pause, in steps
_NEWEST_SHARE = 0.1


class Pause:
    """Counts vain searches; pauses so long that searches take 0.2 % of the time."""

    def __init__(self) -> None:
        self._num_vain = self._num_to_rest = 0
        self._search_seconds = self._step_seconds = 0.0

    def rests(self) -> bool:
        """Counts a step; returns True if it does without a search for drafts."""
        self._num_to_rest -= 1
        return self._num_to_rest >= 0

    def searched(self, seconds: float, gained: float) -> None:
        """Records a search: the seconds that it took, and those that its drafts should gain."""
        if not self._search_seconds:
            self._search_seconds = seconds
        usual = self._search_seconds
        self._search_seconds += (min(seconds, 4 * usual) - usual) * _NEWEST_SHARE
        self._num_vain = 0 if gained > seconds else self._num_vain + 1
        if self._num_vain > _MOST_VAIN and self._step_seconds:
            times = self._search_seconds / (_SHARE * self._step_seconds)
            self._num_to_rest = min(_LONGEST, int(times))

    def paid(self) -> None:
        """Records that a model drafted; `ModelChoice` decides whether that pays."""
        self._num_vain = 0

    def step(self, seconds: float) -> None:
        """Records the duration of a step without drafts."""
        self._step_seconds = seconds
