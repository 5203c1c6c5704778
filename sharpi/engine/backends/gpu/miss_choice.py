"""MissChoice: finds the miss mode that is fastest on the running model.

Every mode first decodes a few tokens. Then the fastest one is used. Once in a while it alternates
with another mode in a trial, until their times differ clearly. A trial of a slow mode stops early.
The slower mode is tried again once the cost of its trial is a small fraction of the time since.
"""

from collections.abc import Generator, Sequence
from statistics import fmean, median

from sharpi.ops.cuda.recorded import MissMode

LOOK, TURN = 3, 8  # tokens timed per mode: in the first trial, and in each round of a later one
ROUNDS = 8  # the most rounds of a trial of two modes
FIRST_SETTLING = 2  # first tokens of a mode that do not count: kernels load, a graph is captured
SETTLING = 1  # first tokens of a mode in every later round that do not count
CLOSE = 0.3  # relative difference that decides after one round; after more, a smaller one does
HOPELESS = 1.5  # a mode this many times slower is dropped after two tokens
NOTABLE = 1.02  # another mode takes over if it is this many times faster
# A new trial starts once the fastest mode's times differ from its earlier ones by this ratio.
DRIFT = 1.33
SHARE = 0.005  # the most that trials of other modes may cost, as a fraction of all time
LEAST_REST, MOST_REST = 512, 8192  # tokens between two trials of another mode
RECENT = 64  # tokens of the fastest mode that are compared with as many before them

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
        yield from self._look()
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

    def _look(self) -> Tokens:
        """Times a few tokens in each mode; postpones the next trial of far slower modes."""
        for mode in self._modes:
            times, best = list[float](), min(self.seconds.values(), default=None)
            yield from self._time(mode, times, LOOK, FIRST_SETTLING, beside=best)
            self.seconds[mode] = typical(times)
        self.fastest = min(self._modes, key=self.seconds.__getitem__)
        best = self.seconds[self.fastest]
        for mode in self._others():
            if self.seconds[mode] > HOPELESS * best:
                self._rest(mode, (LOOK + FIRST_SETTLING) * (self.seconds[mode] / best - 1))

    def _time(
        self, mode: MissMode, times: list[float], count: int, settling: int, beside: float | None
    ) -> Tokens:
        """Appends the seconds of `count` tokens in a mode to `times`.

        The first `settling` tokens in the mode are not timed. Stops early if tokens take far longer
        than `beside`, the seconds of a token in another mode.
        """
        for _ in range(settling):
            yield mode
        for number in range(count):
            times.append((yield mode))
            if beside and number and min(times[-2:]) > HOPELESS * beside:
                break

    def _compare(self, challenger: MissMode) -> Tokens:
        """Alternates between the fastest mode and `challenger` until their times differ clearly."""
        self.is_settled = False
        first, clock = self._token, self._clock
        theirs, ours = list[float](), list[float]()
        yield from self._time(self.fastest, ours, TURN, SETTLING, beside=None)
        for number in range(1, ROUNDS + 1):
            yield from self._time(challenger, theirs, TURN, SETTLING, beside=typical(ours))
            ratio, limit = typical(theirs) / typical(ours), 1 + CLOSE / number**0.5
            if not 1 / limit < ratio < limit:
                break
            yield from self._time(self.fastest, ours, TURN, SETTLING, beside=None)
        loser = self._judge(challenger, typical(theirs), typical(ours))
        quickest = (self._token - first) * self.seconds[self.fastest]
        self._rest(loser, (self._clock - clock - quickest) / self.seconds[self.fastest])

    def _judge(self, challenger: MissMode, theirs: float, ours: float) -> MissMode:
        """Returns the slower of two modes with these seconds per token, and updates the fastest.

        `ours` are the seconds of the fastest mode so far, `theirs` those of `challenger`.
        """
        self.seconds |= {challenger: theirs, self.fastest: ours}
        self._usual = None
        self._recent.clear()
        if theirs * NOTABLE >= ours:
            return challenger
        loser, self.fastest = self.fastest, challenger
        return loser

    def _rest(self, mode: MissMode, excess: float) -> None:
        """Postpones a mode's next trial, by the cost of the last one.

        `excess` is that cost: the further tokens that the fastest mode would have decoded during
        the trial.
        """
        rest = min(max(LEAST_REST, round(excess / SHARE)), MOST_REST)
        self._due[mode] = self._token + rest

    def _watch_drift(self) -> None:
        """Makes all trials due again once the fastest mode's time per token has changed clearly.

        Other work on the machine or a longer context may change it.
        """
        if len(self._recent) < RECENT:
            return
        now = median(self._recent)
        self._recent.clear()
        if self._usual is None:
            self._usual = now
        elif max(now, self._usual) > DRIFT * min(now, self._usual):
            self._due = dict.fromkeys(self._modes, self._token)


def typical(times: Sequence[float]) -> float:
    """Returns the mean of the middle half of `times`, which leaves out the outliers."""
    cut = (len(times) + 1) // 4
    return fmean(sorted(times)[cut : len(times) - cut])
