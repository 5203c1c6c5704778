"""Trial: decides from the times of decoded tokens which of several options is fastest.

Whether prefetching pays, which policy, which way to use missed experts, slots or the mapped file,
how many drafts: the answers depend on the disk, the bus, the model and the text. So they are
measured while the model runs. All decisions follow the same rules:

- Times scatter. Options take turns in short rounds; the first tokens of a round do not count, and
  averages leave out or cut outliers.
- What is in use stays unless another option is faster by a margin. A trial ends early if the other
  option is clearly slower.
- Trials may cost little: an option that lost waits until the cost of another trial is a small part
  of the time since. The wait doubles each time that it loses again.
- If tokens begin to take another time, all options are tried again.
"""

from collections.abc import Generator, Hashable, Sequence
from typing import Generic, TypeVar

MARGIN = 1.02  # another option takes over if it is this many times faster
MAX_LOSS = 0.02  # the part of all time that trials may cost
ROUND_TOKENS = 8  # tokens of an option in a round; at least three times as many as its warm-up
TRIAL_TOKENS = 64  # tokens of each option in a whole trial
# The relative difference that is clear after one round; after n rounds it is a root of n smaller.
CLEAR_DIFFERENCE = 0.3
MIN_PAUSE, MAX_PAUSE = 512, 8192  # tokens between two trials of an option
# At first each option only has a few tokens; kernels load and graphs are captured in the very first
# ones. An option that is slower than this ratio has even fewer.
FIRST_WARM_UP, FIRST_TOKENS, SLOW_RATIO = 2, 3, 1.5
# Options are tried again if as many tokens as in a trial take another time than before.
DRIFT_RATIO = 1.33
OUTLIER = 4.0  # times that are this many times longer than usual count as that long
NEWEST_SHARE = 0.2  # of the newest value in a running average
# Values of a running average of which the shortest counts, because the first one warms up.
NUM_FIRST = 3
ALLOWANCE = 3.0  # steps that a budget allows to lose before it has earned anything

Option = TypeVar("Option", bound=Hashable)
Tokens = Generator[Option, float, None]


class Trial(Generic[Option]):
    """Receives the seconds of every decoded token, and decides the option of the next one.

    With a `default`, that option has the first tokens, in which caches fill, and stays in use until
    another one has won a whole trial. Without one, each option first has a few tokens. `warm_up`:
    the tokens after a change that do not count.
    """

    def __init__(
        self, options: Sequence[Option], *, default: Option | None = None, warm_up: int = 1
    ) -> None:
        self.options, self._warm_up = tuple(options), warm_up
        self._round = max(ROUND_TOKENS, 3 * warm_up)
        self.fastest: Option = self.options[0] if default is None else default
        self.seconds: dict[Option, float] = {}  # per token, in each option's last trial
        self.is_settled = len(self.options) == 1  # no options are being compared now
        self._has_fastest = default is not None
        # By option: the token at which its next trial begins, and how often in a row it has lost.
        self._due = dict.fromkeys(self.options, 0 if default is None else TRIAL_TOKENS)
        self._losses = dict.fromkeys(self.options, 0)
        self._token = 0
        self._recent: list[float] = []  # seconds of tokens since the last trial
        self._usual: float | None = None  # seconds per token of the fastest option since then
        self._tokens = self._all_tokens()
        self.choice: Option = next(self._tokens)

    def record(self, seconds: float) -> bool:
        """Records one token's seconds; returns True if another option is now the fastest."""
        before, had_fastest = self.fastest, self._has_fastest
        self._token += 1
        self.choice = self._tokens.send(seconds)
        return had_fastest and before != self.fastest

    def ratio(self, option: Option, other: Option) -> float:
        """Returns the time of a token with `option` in times of one with `other`, as measured."""
        return self.seconds[option] / max(self.seconds[other], 1e-9)

    def _all_tokens(self) -> Tokens[Option]:
        """Yields the option of each token, and receives the seconds that the token took."""
        while len(self.options) == 1:
            yield self.fastest
        if not self._has_fastest:
            yield from self._first_trial()
        while True:
            challenger = min(self._others(), key=self._due.__getitem__)
            if self._due[challenger] <= self._token:
                yield from self._compare(challenger)
            else:
                self.is_settled = self._has_fastest = True
                self._add_recent((yield self.fastest))

    def _others(self) -> list[Option]:
        return [option for option in self.options if option != self.fastest]

    def _first_trial(self) -> Tokens[Option]:
        """Times a few tokens with each option; postpones the next trial of far slower ones."""
        for option in self.options:
            slow = SLOW_RATIO * min(self.seconds.values(), default=float("inf"))
            times = list[float]()
            for number in range(FIRST_WARM_UP + FIRST_TOKENS):
                times.append((yield option))
                if number > FIRST_WARM_UP and min(times[-2:]) > slow:
                    break
            self.seconds[option] = typical(times[FIRST_WARM_UP:])
        self.fastest = min(self.options, key=self.seconds.__getitem__)
        for option in self._others():
            if self.ratio(option, self.fastest) > SLOW_RATIO:
                self._postpone(option)

    def _compare(self, challenger: Option) -> Tokens[Option]:
        """Takes turns between the fastest option and `challenger`, and keeps the faster one."""
        self.is_settled = False
        ours, theirs = list[float](), list[float]()
        while len(theirs) < TRIAL_TOKENS:
            yield from self._time(self.fastest, ours)
            yield from self._time(challenger, theirs)
            limit = 1 + CLEAR_DIFFERENCE / (len(theirs) / ROUND_TOKENS) ** 0.5
            if typical(theirs) > limit * typical(ours):
                break
        self._postpone(self._decide(challenger, typical(theirs), typical(ours)))

    def _time(self, option: Option, times: list[float]) -> Tokens[Option]:
        """Appends the seconds of a round's tokens to `times`, without those that warm up."""
        for _ in range(self._warm_up):
            yield option
        for _ in range(self._round):
            times.append((yield option))

    def _decide(self, challenger: Option, theirs: float, ours: float) -> Option:
        """Returns the slower of two options with these seconds per token; updates the fastest."""
        self._watch_drift(self.seconds.get(self.fastest, ours), ours)
        self.seconds |= {challenger: theirs, self.fastest: ours}
        self._usual = None
        self._recent.clear()
        if theirs * MARGIN >= ours:
            return challenger
        slower, self.fastest = self.fastest, challenger
        self._losses[challenger] = 0
        return slower

    def _postpone(self, option: Option) -> None:
        """Postpones the next trial of an option that lost, by what that trial will cost.

        It ends as soon as it is clear again that the option is slower.
        """
        slower = self.ratio(option, self.fastest) - 1
        rounds = min(
            TRIAL_TOKENS / self._round, max(1, (CLEAR_DIFFERENCE / max(slower, 0.01)) ** 2)
        )
        cost = slower * rounds * (self._round + self._warm_up)  # tokens
        pause = max(MIN_PAUSE, cost * len(self.options) / MAX_LOSS) * 2 ** self._losses[option]
        self._due[option] = self._token + int(min(pause, MAX_PAUSE))
        self._losses[option] += 1

    def _add_recent(self, seconds: float) -> None:
        """Adds a token of the fastest option, and compares as many as in a trial with earlier ones.

        Other work on the machine or a longer context may change their time.
        """
        self._recent.append(seconds)
        if len(self._recent) < TRIAL_TOKENS:
            return
        now = _median(self._recent)
        self._recent.clear()
        if self._usual is None:
            self._usual = now
        self._watch_drift(self._usual, now)

    def _watch_drift(self, before: float, now: float) -> None:
        """Makes all trials due again if the fastest option's seconds have changed clearly."""
        if max(before, now) > DRIFT_RATIO * min(before, now):
            self._due = dict.fromkeys(self.options, self._token)


class Budget:
    """The seconds that trials have lost, and the seconds that all steps have taken.

    `usual`: the seconds of a step without a trial.
    """

    def __init__(self) -> None:
        self.seconds = self.lost = self.usual = 0.0

    def record(self, seconds: float, lost: float, usual: float) -> None:
        """Records a step: its duration, and the seconds that it lost if it was a trial."""
        self.seconds += seconds
        self.lost += lost
        self.usual = usual

    def spend(self, seconds: float) -> None:
        """Counts seconds that a trial took outside of steps, for example for drafting."""
        self.seconds += seconds
        self.lost += seconds

    def allows(self, cost: float) -> bool:
        """Returns True if trials may lose another `cost` seconds."""
        return self.lost + cost <= self.limit

    @property
    def limit(self) -> float:
        """The seconds that may be lost so far.

        The allowance serves short answers; long ones earn it back before more is tried.
        """
        return max(MAX_LOSS * self.seconds, ALLOWANCE * self.usual)


class Average:
    """A running average in which newer values count more; 0 before the first value."""

    def __init__(self) -> None:
        self.value, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.count += 1
        if self.count <= NUM_FIRST:
            self.value = value if self.count == 1 else min(self.value, value)
        else:
            self.value += (min(value, OUTLIER * self.value) - self.value) * NEWEST_SHARE


# The module `statistics` imports fractions and more, for each start of the program.
def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2


def typical(times: Sequence[float]) -> float:
    """Returns the mean of the middle half of `times`, which leaves out the outliers."""
    cut = (len(times) + 1) // 4
    return _mean(sorted(times)[cut : len(times) - cut])


def mean_seconds(times: Sequence[float]) -> float:
    """Returns the mean, with outliers cut; they may come from other programs.

    Stalls that belong to an option count, if they are not too long.
    """
    most = OUTLIER * _median(times)
    return _mean([min(seconds, most) for seconds in times])
