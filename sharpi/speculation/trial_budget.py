"""TrialBudget: limits the time that trials and checks of drafts may lose."""

_SHARE = 0.02  # the part of the time of all decoding steps that may be lost
_ALLOWANCE = 3.0  # steps that may be lost at the start
_MOST_SAVED = 8.0  # steps gained by checks that later checks may lose again


class TrialBudget:
    """The seconds that trials have lost, and the seconds that all steps have taken.

    `check_seconds` are the additional seconds of checks, compared with decoding their tokens one by
    one. It is negative if checks saved time.
    """

    def __init__(self) -> None:
        self.seconds = self.lost = self.check_seconds = 0.0
        self._usual = 0.0

    def record(self, seconds: float, lost: float, usual: float) -> None:
        """Records a step: its duration, and the seconds that it lost if it was a trial.

        `usual` is the duration of a step without drafts.
        """
        self.seconds += seconds
        self.lost += lost
        self._usual = usual

    def check(self, seconds: float) -> None:
        """Records a check: its additional seconds, compared with decoding its tokens one by one."""
        self.check_seconds = max(self.check_seconds + seconds, -_MOST_SAVED * self._usual)

    @property
    def is_exceeded(self) -> bool:
        """True if checks have lost more time than the budget allows."""
        return self.check_seconds > self._limit

    def spend(self, seconds: float) -> None:
        """Counts seconds that a trial took outside of steps, for example for drafting."""
        self.seconds += seconds
        self.lost += seconds

    def allows(self, cost: float) -> bool:
        """Returns True if trials may lose another `cost` seconds."""
        return self.lost + cost <= self._limit

    @property
    def _limit(self) -> float:
        # The allowance serves short answers; long ones earn it back before more is tried.
        return max(_SHARE * self.seconds, _ALLOWANCE * self._usual)
