"""TrialBudget: bounds the time that trying out drafts may lose."""

_SHARE = 0.02  # of the time of all decoding steps
_ALLOWANCE = 3.0  # steps that may be lost before there is any share to speak of


class TrialBudget:
    """The seconds that trials have lost, and the seconds that all steps have taken."""

    def __init__(self) -> None:
        self.seconds = self.lost = 0.0
        self._usual = 0.0

    def record(self, seconds: float, lost: float, usual: float) -> None:
        """Records a step: its duration, the time it lost, and the duration of a usual step."""
        self.seconds += seconds
        self.lost += lost
        self._usual = usual

    def spend(self, seconds: float) -> None:
        """Counts seconds that a trial took outside a step."""
        self.seconds += seconds
        self.lost += seconds

    def allows(self, cost: float) -> bool:
        """True if trials may lose `cost` seconds more."""
        # The allowance is for short answers; long ones earn it back before more is tried.
        share = max(_SHARE * self.seconds, _ALLOWANCE * self._usual)
        return self.lost + cost <= share
