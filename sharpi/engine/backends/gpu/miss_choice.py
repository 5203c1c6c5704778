"""MissChoice: finds the miss mode that is fastest on the running model.

Every mode first decodes a few tokens. Then the fastest one is used. Once in a while it alternates
with another mode in a trial, until their times differ clearly. A trial of a slow mode stops early.
The slower mode is tried again once the cost of its trial is a small fraction of the time since.
"""

from collections.abc import Generator, Sequence
from statistics import fmean, median

from sharpi.ops.cuda.recorded import MissMode

# Tokens timed per mode: in the first trial, and in each round of a later one.
FIRST_TOKENS, ROUND_TOKENS = 3, 8
ROUNDS = 8  # the most rounds of a trial of two modes
FIRST_WARM_UP = 2  # first tokens of a mode that do not count: kernels load, a graph is captured
WARM_UP = 1  # first tokens of a mode in every later round that do not count
# The relative difference that decides after one round; after more, a smaller one does.
CLEAR_DIFFERENCE = 0.3
SLOW_RATIO = 1.5  # a mode this many times slower is dropped after two tokens
SWITCH_RATIO = 1.02  # another mode takes over if it is this many times faster
# A new trial starts once the fastest mode's times differ from its earlier ones by this ratio.
DRIFT_RATIO = 1.33
MAX_COST = 0.005  # the most that trials of other modes may cost, as a fraction of all time
MIN_PAUSE, MAX_PAUSE = 512, 8192  # tokens between two trials of another mode
RECENT_TOKENS = 64  # tokens of the fastest mode that are compared with as many before them

Tokens = Generator[MissMode, float, None]


class MissChoice:
    """Receives the seconds of every decoded token, and decides the miss mode of the next one."""

    def __init__(self, modes: Sequence[MissMode]) -> None:
        self._modes = tuple(modes)
        self.fastest: MissMode = self._modes[0]
        self.seconds: dict[MissMode, float] = {}  # per token, in each mode's last trial
        # The token at which the next trial of each mode begins.
        self._due: dict[MissMode, int] = dict.fromkeys(modes, 0)
        self._recent: list[float] = []
        # Seconds per token of the fastest mode since its last trial.
        self._usual: float | None = None
        self._token, self._clock = 0, 0.0
        self.is_settled = len(self._modes) == 1  # no modes are being compared now
        self._has_fastest = False
        self._tokens = self._all_tokens()
        self.mode: MissMode = next(self._tokens)

    def record(self, seconds: float) -> bool:
        """Records one token's seconds; returns True if another mode is now the fastest."""
        before, had_fastest = self.fastest, self._has_fastest
        self._token += 1
        self._clock += seconds
        self.mode = self._tokens.send(seconds)
        return had_fastest and before != self.fastest

    def _all_tokens(self) -> Tokens:
        """Yields the miss mode of each token, and receives the seconds that the token took."""
        while len(self._modes) == 1:
            yield self.fastest
        yield from self._first_trial()
        while True:
            challenger = min(self._others(), key=self._due.__getitem__)
            if self._due[challenger] <= self._token:
                yield from self._compare(challenger)
            else:
                self.is_settled = self._has_fastest = True
                self._recent.append((yield self.fastest))
                self._watch_drift()

    def _others(self) -> list[MissMode]:
        return [mode for mode in self._modes if mode != self.fastest]

    def _first_trial(self) -> Tokens:
        """Times a few tokens in each mode; postpones the next trial of far slower modes."""
        for mode in self._modes:
            times, best = list[float](), min(self.seconds.values(), default=None)
            yield from self._time(mode, times, FIRST_TOKENS, FIRST_WARM_UP, other_seconds=best)
            self.seconds[mode] = typical(times)
        self.fastest = min(self._modes, key=self.seconds.__getitem__)
        best = self.seconds[self.fastest]
        for mode in self._others():
            if self.seconds[mode] > SLOW_RATIO * best:
                self._postpone_trial(
                    mode, (FIRST_TOKENS + FIRST_WARM_UP) * (self.seconds[mode] / best - 1)
                )

    def _time(
        self,
        mode: MissMode,
        times: list[float],
        count: int,
        warm_up: int,
        other_seconds: float | None,
    ) -> Tokens:
        """Appends the seconds of `count` tokens in a mode to `times`.

        The first `warm_up` tokens in the mode are not timed. Stops early if tokens take far longer
        than `other_seconds`, the seconds of a token in another mode.
        """
        for _ in range(warm_up):
            yield mode
        for number in range(count):
            times.append((yield mode))
            if other_seconds and number and min(times[-2:]) > SLOW_RATIO * other_seconds:
                break

    def _compare(self, challenger: MissMode) -> Tokens:
        """Alternates between the fastest mode and `challenger` until their times differ clearly."""
        self.is_settled = False
        first, clock = self._token, self._clock
        theirs, ours = list[float](), list[float]()
        yield from self._time(self.fastest, ours, ROUND_TOKENS, WARM_UP, other_seconds=None)
        for number in range(1, ROUNDS + 1):
            yield from self._time(
                challenger, theirs, ROUND_TOKENS, WARM_UP, other_seconds=typical(ours)
            )
            ratio, limit = typical(theirs) / typical(ours), 1 + CLEAR_DIFFERENCE / number**0.5
            if not 1 / limit < ratio < limit:
                break
            yield from self._time(self.fastest, ours, ROUND_TOKENS, WARM_UP, other_seconds=None)
        slower = self._record_trial(challenger, typical(theirs), typical(ours))
        fastest_seconds = (self._token - first) * self.seconds[self.fastest]
        self._postpone_trial(
            slower, (self._clock - clock - fastest_seconds) / self.seconds[self.fastest]
        )

    def _record_trial(self, challenger: MissMode, theirs: float, ours: float) -> MissMode:
        """Returns the slower of two modes with these seconds per token, and updates the fastest.

        `ours` are the seconds of the fastest mode so far, `theirs` those of `challenger`.
        """
        self.seconds |= {challenger: theirs, self.fastest: ours}
        self._usual = None
        self._recent.clear()
        if theirs * SWITCH_RATIO >= ours:
            return challenger
        slower, self.fastest = self.fastest, challenger
        return slower

    def _postpone_trial(self, mode: MissMode, excess: float) -> None:
        """Postpones a mode's next trial, by the cost of the last one.

        `excess` is that cost: the further tokens that the fastest mode would have decoded during
        the trial.
        """
        pause = min(max(MIN_PAUSE, round(excess / MAX_COST)), MAX_PAUSE)
        self._due[mode] = self._token + pause

    def _watch_drift(self) -> None:
        """Makes all trials due again once the fastest mode's time per token has changed clearly.

        Other work on the machine or a longer context may change it.
        """
        if len(self._recent) < RECENT_TOKENS:
            return
        now = median(self._recent)
        self._recent.clear()
        if self._usual is None:
            self._usual = now
        elif max(now, self._usual) > DRIFT_RATIO * min(now, self._usual):
            self._due = dict.fromkeys(self._modes, self._token)


def typical(times: Sequence[float]) -> float:
    """Returns the mean of the middle half of `times`, which leaves out the outliers."""
    cut = (len(times) + 1) // 4
    return fmean(sorted(times)[cut : len(times) - cut])
