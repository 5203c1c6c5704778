"""Measures if predicting pays: times tokens with and without it on the running model.

Predictions cost time, reads that are never used, and places in memory, so they have to prove
themselves: of every 32 tokens the last 8 go without, and the medians are compared. The decision
holds for a while, and then the trial is repeated.
"""

from statistics import median

PERIOD, WITHOUT = 32, 8  # tokens
SETTLING = 1  # tokens after a switch that are not counted
PERIODS = 6
COSTS_TOO_MUCH = 1.02  # ratio of the time with predictions to the time without
TOKENS_UNTIL_RETRIAL = 2048


class PredictionTrial:
    """Receives the seconds of every decoded token, and decides if the next one uses predictions."""

    def __init__(self) -> None:
        self.is_on = True  # the decision
        # seconds with divided by seconds without, in the last trial
        self.ratio: float | None = None
        self._token = 0
        self._rest = 0  # tokens until the next trial
        self._with: list[float] = []
        self._without: list[float] = []

    @property
    def predicts_now(self) -> bool:
        """True if the next token uses predictions."""
        if self._rest:
            return self.is_on
        return self._token % PERIOD < PERIOD - WITHOUT

    @property
    def decision_note(self) -> str:
        """The message to the user when the decision changed."""
        state = "on again" if self.is_on else "off"
        return (
            f"prefetching of predicted experts switched {state}: tokens took"
            f" {self.ratio:.2f} times as long with it as without"
        )

    def record(self, seconds: float) -> bool:
        """Records one token's seconds; returns True if the decision changed."""
        if self._rest:
            self._rest -= 1
            return False
        self._sort_in(seconds)
        self._token += 1
        return self._token == PERIOD * PERIODS and self._judge()

    def _sort_in(self, seconds: float) -> None:
        place = self._token % PERIOD
        since_switch = place if self.predicts_now else place - (PERIOD - WITHOUT)
        if since_switch >= SETTLING:
            (self._with if self.predicts_now else self._without).append(seconds)

    def _judge(self) -> bool:
        before = self.is_on
        self.ratio = median(self._with) / max(median(self._without), 1e-9)
        self.is_on = self.ratio <= COSTS_TOO_MUCH
        self._token, self._rest = 0, TOKENS_UNTIL_RETRIAL
        self._with.clear()
        self._without.clear()
        return before != self.is_on
