"""TrialBudget: bounds the time that trying out drafts, and checking them, may lose."""

_SHARE = 0.02  # of the time of all decoding steps
_ALLOWANCE = 3.0  # steps that may be lost before there is any share to speak of
_MOST_SAVED = 8.0  # steps that checks have gained, and that later ones may lose


class TrialBudget:
    """The seconds that trials have lost, and the seconds that all steps have taken.

    `owed` are the seconds that all checks have taken beyond what their tokens would have alone;
    below 0 if they have gained.
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
        """Records a check: the seconds that it took beyond what its tokens take alone."""
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
        # The allowance is for short answers; long ones earn it back before more is tried.
        return max(_SHARE * self.seconds, _ALLOWANCE * self._usual)
