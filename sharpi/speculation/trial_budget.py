"""TrialBudget: bounds the time that trials and checks of drafts may lose."""

_SHARE = 0.02  # the part of the time of all decoding steps that may be lost
_ALLOWANCE = 3.0  # steps that may be lost at the start
_MOST_SAVED = 8.0  # steps gained by checks that later checks may lose again


class TrialBudget:
    """The seconds that trials have lost, and the seconds that all steps have taken.

    `owed` are the seconds that checks took beyond what their tokens would have taken one by one;
    below 0 if they gained.
    """

    def __init__(self) -> None:
        self.seconds = self.lost = self.owed = 0.0
        self._usual = 0.0

    def record(self, seconds: float, lost: float, usual: float) -> None:
        """Records a step: its duration, the time it lost, and the duration of a usual step."""
        self.seconds += seconds
        self.lost += lost
        self._usual = usual

    def check(self, seconds: float) -> None:
        """Records a check: the seconds that it took beyond those of its tokens one by one."""
        self.owed = max(self.owed + seconds, -_MOST_SAVED * self._usual)

    @property
    def is_overdrawn(self) -> bool:
        """True if the checks so far have lost more than may be lost."""
        return self.owed > self._limit

    def spend(self, seconds: float) -> None:
        """Counts seconds that a trial took outside a step."""
        self.seconds += seconds
        self.lost += seconds

    def allows(self, cost: float) -> bool:
        """True if trials may lose `cost` seconds more."""
        return self.lost + cost <= self._limit

    @property
    def _limit(self) -> float:
        # The allowance serves short answers; long ones earn it back before more is tried.
        return max(_SHARE * self.seconds, _ALLOWANCE * self._usual)
