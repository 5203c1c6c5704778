"""DraftPolicy: decides how many drafted tokens the next step checks, possibly none.

As in Cascade (arXiv 2506.20675), a step's utility is the number of tokens that it yields, divided
by its time in units of a step without drafts. Both are measured while the model runs. If drafts
would not save time, the step checks none. Trials to find that out keep to the budget of trial.py.
`ModelDrafts` decides in the same way how many tokens a model drafts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sharpi.trial import MARGIN, MIN_PAUSE, NEWEST_SHARE, NUM_FIRST, Average, Budget

# The assumed cost of an unmeasured row relative to a step: low, so that it is tried.
_HOPED_SLOPE = 0.15
_REFRESHED_AFTER = 16  # equal steps after which estimates of other sizes are renewed
_OLD_AFTER = 400  # a size that has not run for so many steps is tried again


class StepTimes:
    """The average seconds of a step by its number of rows, interpolated between measured sizes.

    It assumes that more rows never take less time. Without `trusts_one`, sizes larger than the
    smallest one count as measured from their second step on.
    """

    def __init__(self, *, trusts_one: bool = True) -> None:
        self._least = 1 if trusts_one else 2  # steps of a size that an estimate needs
        self._averages: dict[int, Average] = {}
        self._latest: dict[int, int] = {}  # the step at which each size ran last
        self._num_steps = 0
        self._answers: dict[int, float] = {}  # recent results of `seconds`
        self._answered = 0  # the size of the last step

    def record(self, rows: int, seconds: float) -> None:
        """Records the duration of a step that had `rows` rows."""
        if rows not in self._averages or self._is_old(rows):
            self._averages[rows] = Average()
        average = self._averages[rows]
        average.add(seconds)
        self._num_steps += 1
        self._latest[rows] = self._num_steps
        is_renewed = average.count <= NUM_FIRST or self._num_steps % _REFRESHED_AFTER == 0
        if is_renewed or rows != self._answered:
            self._answers.clear()
        self._answered = rows
        if average.count >= self._least:
            self._answers[rows] = average.value

    def _is_old(self, rows: int) -> bool:
        return self._num_steps - self._latest.get(rows, self._num_steps) > _OLD_AFTER

    def count(self, rows: int) -> int:
        """Returns the number of measured steps that had `rows` rows."""
        return self._averages[rows].count if rows in self._averages else 0

    def is_known(self, rows: int) -> bool:
        """Returns True if steps of about `rows` rows were measured more than once, and recently."""
        near = range(rows - rows // 4, rows + rows // 4 + 1)
        return any(self.count(each) > 1 and not self._is_old(each) for each in near)

    def seconds(self, rows: int) -> float:
        """Returns the expected seconds of a step of `rows` rows; 0 before any measurement."""
        answer = self._answers.get(rows)
        if answer is None:
            answer = self._answers[rows] = self._estimate(rows)
        return answer

    def _estimate(self, rows: int) -> float:
        sizes = sorted(size for size in self._averages if not self._is_old(size))
        sizes = [size for size in sizes if size == sizes[0] or self.count(size) >= self._least]
        larger = [self._averages[size].value for size in sizes if size >= rows]
        smaller = [size for size in sizes if size < rows]
        if rows in sizes or not smaller:
            return min(larger, default=0.0)
        lower = smaller[-1]
        base = min(self._averages[size].value for size in sizes if size >= lower)
        if not larger:
            return base + self._slope(sizes[0], lower, base) * (rows - lower)
        upper = next(size for size in sizes if size >= rows)
        return base + (min(larger) - base) * (rows - lower) / (upper - lower)

    def _slope(self, first: int, lower: int, base: float) -> float:
        """Returns the seconds of a row beyond `lower`: few, but with a disk as for earlier ones."""
        hoped = _HOPED_SLOPE * base / lower
        if self._least == 1 or lower == first:
            return hoped
        return max(hoped, (base - self._averages[first].value) / (lower - first))


# If experts are read from a disk, one stall may take as long as several steps. One of the first
# checks must not use up the budget, so it counts as at most as many steps as it has rows.
_FIRST_CHECKS = 4
_STALE_AFTER = 64  # checks after which a step without drafts is measured again
_MOST_SAVED = 8.0  # steps gained by checks that later checks may lose again


class Choice(NamedTuple):
    """The number of drafts to check for each sequence, and of tokens expected in all."""

    lengths: tuple[int, ...]
    num_tokens: float
    is_trial: bool = False


class _Offers:
    """The drafted tokens that a step of `num` sequences may check, the likeliest first."""

    def __init__(self, chances: Sequence[Sequence[float]], most: int) -> None:
        self.num = len(chances)
        offers = [(chance, i) for i, own in enumerate(chances) for chance in own]
        if self.num > 1:  # tokens of a draft stay in order, since their chances never rise
            offers.sort(key=lambda offer: -offer[0])
        self._owners = [owner for _, owner in offers[:most]]
        self.chances = [chance for chance, _ in offers[:most]]

    def first(self, count: int, *, is_trial: bool = False) -> Choice:
        """Returns the choice of the first `count` tokens."""
        lengths = [0] * self.num
        for owner in self._owners[:count]:
            lengths[owner] += 1
        return Choice(tuple(lengths), self.num + sum(self.chances[:count]), is_trial)

    def utilities(self, times: StepTimes) -> list[float]:
        """Returns the utility of checking the first 0, 1, 2 ... tokens."""
        usual, tokens = times.seconds(self.num) / self.num, float(self.num)
        utilities = [1.0]
        for count, chance in enumerate(self.chances, 1):
            tokens += chance
            utilities.append(tokens * usual / (times.seconds(self.num + count) or tokens * usual))
        return utilities


class DraftPolicy:
    """Chooses drafts to check by measured times; with `reads_disk` a trial doubles rows at most."""

    def __init__(self, *, reads_disk: bool = False) -> None:
        self._reads_disk = reads_disk
        self.times = StepTimes(trusts_one=not reads_disk)
        self.budget = Budget()
        # The additional seconds of checks, compared with decoding their tokens one by one; negative
        # if checks saved time.
        self._check_seconds = 0.0
        self._num_checks = 0  # checks since the last step without drafts
        self._num_checked = 0  # checks so far

    def choose(self, chances: Sequence[Sequence[float]], most: int) -> Choice:
        """Chooses how many tokens to check, `most` in all, by chances of each and those before."""
        num = len(chances)
        none = Choice((0,) * num, float(num))
        has_lost = self._reads_disk and self._check_seconds > self.budget.limit
        if not any(chances) or not self.times.count(num) or has_lost:
            return none
        offers = _Offers(chances, most)
        utilities = offers.utilities(self.times)
        best = max(range(len(utilities)), key=utilities.__getitem__)
        if best == 0 or utilities[best] < MARGIN:
            return none
        if not self.times.is_known(num + best):
            return self._trial(offers, best) or self._of_known(offers, utilities[: best + 1])
        loss = self.times.seconds(num) * (utilities[best] - 1)
        if self._num_checks >= _STALE_AFTER and self.budget.allows(loss):
            return none._replace(is_trial=True)
        return offers.first(best)

    def _trial(self, offers: _Offers, best: int) -> Choice | None:
        """Returns a trial of as many drafts as the budget allows; None if it allows none."""
        num, most = offers.num, best
        if self._reads_disk:
            sizes = range(num, num + most + 1)
            most = min(most, 2 * max(filter(self.times.is_known, sizes), default=num) - num)
        counts = range(most, 0, -1)
        count = next((n for n in counts if self.budget.allows(self._risk(offers, n))), 0)
        return offers.first(count, is_trial=True) if count else None

    def _risk(self, offers: _Offers, count: int) -> float:
        """Returns the seconds that a trial of `count` tokens may be expected to lose."""
        token = self.times.seconds(offers.num) / offers.num
        row = token / 2  # assumed
        if self._reads_disk:  # no gain is assumed
            return row * count
        reached = [1.0, *offers.chances[: -(-count // 2)]]
        return sum(
            (before - chance) * (row * count - token * right)
            for right, (before, chance) in enumerate(pairwise(reached))
        )

    def _of_known(self, offers: _Offers, utilities: Sequence[float]) -> Choice:
        """Returns the largest choice for which measurements show a gain, or none."""
        known = (
            count
            for count in range(len(utilities) - 1, 0, -1)
            if utilities[count] >= MARGIN and self.times.is_known(offers.num + count)
        )
        return offers.first(next(known, 0))

    def record(self, choice: Choice, seconds: float, num_tokens: int) -> None:
        """Records a step that followed `choice`: its duration, and the tokens that it yielded."""
        num, rows = len(choice.lengths), len(choice.lengths) + sum(choice.lengths)
        is_check = rows > num
        if not is_check or self._num_checked:
            self.times.record(rows, seconds)
        # The first check may read experts from the disk that later ones find in slots.
        self._num_checked += is_check
        self._num_checks = self._num_checks + 1 if is_check else 0
        usual = self.times.seconds(num)
        more = seconds - num_tokens / num * usual if is_check else 0.0
        if self._reads_disk and self._num_checked <= _FIRST_CHECKS:
            more = min(more, max(0, rows - num_tokens) / num * usual)
        self.budget.record(seconds, max(0.0, more) if choice.is_trial else 0.0, usual)
        if is_check:
            self._check_seconds = max(self._check_seconds + more, -_MOST_SAVED * usual)


_LEAST_CHANCE = 0.15  # below this chance, a row of a check costs more than it can gain
_NUM_FIRST = 2  # drafts of one token for timing; the first may have to process the sequence so far


class ModelDrafts:
    """The measured seconds per drafted token, and the measured chance that it is accepted."""

    def __init__(self) -> None:
        self._seconds, self._chance = Average(), 0.0
        self._num_without = 0
        self._pause = MIN_PAUSE  # steps until drafts are tried again; doubles without success

    def length(self, times: StepTimes, budget: Budget, num: int, most: int) -> int:
        """Returns the tokens to draft for each sequence; 0 if it does not pay nor is tried."""
        usual = times.seconds(num)
        if not usual or most <= 0:
            return 0
        num_drafts, seconds = self._seconds.count, self._seconds.value
        is_unlikely = num_drafts > 0 and self._chance < _LEAST_CHANCE
        if num_drafts < _NUM_FIRST and not is_unlikely:
            return 1 if budget.allows(seconds or usual) else 0
        best, utility = (0, 0.0) if is_unlikely else self._best(times, num, most)
        if utility >= MARGIN:
            self._pause = MIN_PAUSE
            return best
        self._num_without += 1
        if self._num_without < self._pause or not budget.allows(num * seconds):
            return 0
        self._num_without, self._pause = 0, 2 * self._pause
        return 1

    def _best(self, times: StepTimes, num: int, most: int) -> tuple[int, float]:
        best, highest, tokens, reached = 0, 0.0, 1.0, 1.0
        for length in range(1, most + 1):
            reached *= self._chance
            tokens += reached
            cost = times.seconds(num * (1 + length)) + num * length * self._seconds.value
            utility = tokens * times.seconds(num) / cost
            if utility > highest:
                best, highest = length, utility
        return best, highest

    def drafted(self, seconds: float, chance: float) -> None:
        """Records a drafted token: the seconds to draft it, and its chance of being accepted."""
        self._seconds.add(seconds)
        self._chance += (chance - self._chance) * max(NEWEST_SHARE, 1 / self._seconds.count)
