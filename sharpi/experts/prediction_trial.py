"""Measures, while a model runs, whether predictions (or a learned policy) save time.

Predictions cost time, unused reads and memory. In a trial, the last 8 of every 32 tokens are
decoded without predictions, and the median times are compared. The decision holds for a while, and
then the trial is repeated. Trials cost time, too: each time the result is "too slow" again, the
wait for the next trial doubles.
"""

from statistics import median

from msgspec import Struct

PERIOD, WITHOUT = 32, 8  # tokens of a period, and tokens at its end that run without predictions
WARM_UP = 1  # tokens after a switch that are not counted
PERIODS = 6
COSTS_TOO_MUCH = 1.02  # ratio of the time with predictions to the time without
GAINS_AGAIN = 0.98  # what was switched off returns if that ratio is below this one
TOKENS_UNTIL_RETRIAL = 2048
MAX_PAUSE_FACTOR = 16  # the longest wait for a trial, in multiples of TOKENS_UNTIL_RETRIAL


class TrialTimes(Struct, frozen=True):
    """The lengths of a trial's phases, in tokens, and the number of its periods."""

    period: int = PERIOD
    without: int = WITHOUT  # tokens at the end of each period that do without predictions
    warm_up: int = WARM_UP  # tokens after each switch that do not count
    periods: int = PERIODS
    pause: int = TOKENS_UNTIL_RETRIAL  # tokens until the next trial, at first


class PredictionTrial:
    """Receives the duration of every decoded token, and decides if the next one has predictions."""

    def __init__(self, times: TrialTimes | None = None) -> None:
        self._times = times or TrialTimes()
        self.is_on = True  # the latest decision
        # seconds with predictions divided by seconds without, in the last trial
        self.ratio: float | None = None
        self._token = 0
        self._pause_left = 0  # tokens until the next trial
        self._pause_factor = 1  # the next wait, in multiples of `TrialTimes.pause`
        self._with: list[float] = []
        self._without: list[float] = []

    @property
    def predicts_now(self) -> bool:
        """True if the next token uses predictions."""
        if self._pause_left:
            return self.is_on
        return self._token % self._times.period < self._times.period - self._times.without

    @property
    def is_settled(self) -> bool:
        """True between two trials, while the latest decision holds."""
        return self._pause_left > 0

    @property
    def decision_note(self) -> str:
        """The message to the user after the decision has changed."""
        state = "on again" if self.is_on else "off"
        return (
            f"prefetching of predicted experts switched {state}: tokens took"
            f" {self.ratio:.2f} times as long with it as without"
        )

    def record(self, seconds: float) -> bool:
        """Records one token's duration; returns True if the decision changed."""
        if self._pause_left:
            self._pause_left -= 1
            return False
        self._sort_in(seconds)
        self._token += 1
        return self._token == self._times.period * self._times.periods and self._judge()

    def _sort_in(self, seconds: float) -> None:
        place, with_it = self._token % self._times.period, self.predicts_now
        since_switch = place if with_it else place - (self._times.period - self._times.without)
        if since_switch >= self._times.warm_up:
            (self._with if with_it else self._without).append(seconds)

    def _judge(self) -> bool:
        before = self.is_on
        self.ratio = median(self._with) / max(median(self._without), 1e-9)
        self.is_on = self.ratio <= (COSTS_TOO_MUCH if before else GAINS_AGAIN)
        stays_off = not before and not self.is_on
        self._pause_factor = min(2 * self._pause_factor, MAX_PAUSE_FACTOR) if stays_off else 1
        self._token, self._pause_left = 0, self._pause_factor * self._times.pause
        self._with.clear()
        self._without.clear()
        return before != self.is_on
