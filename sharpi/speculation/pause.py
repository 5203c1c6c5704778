"""DraftBackoff: skips the search for drafts in some steps, after several useless searches."""

from sharpi.trial import Average

_MAX_USELESS = 2  # consecutive useless searches before a pause
_SHARE = 0.002  # the share of the time that useless searches may take on average
_LONGEST = 512  # the longest pause, in steps


class DraftBackoff:
    """Counts consecutive useless searches, and decides how many steps go without a search.

    A search is useless if its drafts are not expected to save the time that it took. Pauses are so
    long that such searches take 0.2 % of the time.
    """

    def __init__(self) -> None:
        self._num_useless = self._num_to_skip = 0
        self._search_seconds, self._step_seconds = Average(), 0.0

    def skips_search(self) -> bool:
        """Counts a step; returns True if the step should skip the search for drafts."""
        self._num_to_skip -= 1
        return self._num_to_skip >= 0

    def searched(self, seconds: float, gained: float) -> None:
        """Records a search: the seconds that it took, and the expected gain of its drafts."""
        self._search_seconds.add(seconds)
        self._num_useless = 0 if gained > seconds else self._num_useless + 1
        if self._num_useless > _MAX_USELESS and self._step_seconds:
            times = self._search_seconds.value / (_SHARE * self._step_seconds)
            self._num_to_skip = min(_LONGEST, int(times))

    def record_model_draft(self) -> None:
        """Records that a model drafted, which counts as a useful search.

        `ModelDrafts` decides whether drafts of a model save time.
        """
        self._num_useless = 0

    def step(self, seconds: float) -> None:
        """Records the duration of a step without drafts."""
        self._step_seconds = seconds
