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
    """The seconds of a step by its number of rows, as averages in which newer steps count more.

    It assumes that more rows never take less time, so that larger sizes correct a size that was
    measured at a bad moment. It interpolates linearly between measured sizes. Without `trusts_one`,
    sizes larger than the smallest one count as measured from their second step on.
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

    def _slope(self, sizes: list[int], lower: int, base: float) -> float:
        """Returns the seconds to assume for each row beyond the largest measured size."""
        hoped, first = _HOPED_SLOPE * base / lower, sizes[0]
        if self._least == 1 or lower == first:
            return hoped
        return max(hoped, (base - self._averages[first].value) / (lower - first))

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
            return base + self._slope(sizes, lower, base) * (rows - lower)
        upper = next(size for size in sizes if size >= rows)
        return base + (min(larger) - base) * (rows - lower) / (upper - lower)


# If experts are read from a disk, one stall may take as long as several steps. One of the first
# checks must not use up the budget, so it counts as at most as many steps as it has rows.
_FIRST_CHECKS = 4
_STALE_AFTER = 64  # checks after which a step without drafts is measured again
_MOST_SAVED = 8.0  # steps gained by checks that later checks may lose again


class Choice(NamedTuple):
    """The number of drafted tokens to check for each sequence, and the expected yield.

    `num_tokens` is the number of tokens that the step should yield in all.
    """

    lengths: tuple[int, ...]
    num_tokens: float
    is_trial: bool = False


class DraftPolicy:
    """Chooses the drafted tokens to check by the measured times of an engine's steps.

    With `reads_disk`, steps may read experts from a disk, so that a first check of many rows may
    take as long as several steps. A trial then has at most twice as many rows as were measured.
    """

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
        """Chooses how many drafted tokens of each sequence to check, at most `most` in all.

        `chances` has a list for each sequence of the step, empty if it has no draft. Each list has,
        for every drafted token, the chance that it and all tokens before it are accepted.
        """
        num = len(chances)
        none = Choice((0,) * num, float(num))
        offers = _best_first(chances)[:most]
        if not offers or not self.times.count(num) or self._has_lost:
            return none
        usual = self.times.seconds(num)
        best, utility = self._best(offers, num, usual)
        if best == 0 or utility < MARGIN:
            return none
        if not self.times.is_known(num + best):
            trial = self._trial(offers[:best], num, usual)
            return trial or self._of_known(offers[:best], num, usual) or none
        choice = _of(offers[:best], num)
        if self._num_checks >= _STALE_AFTER and self.budget.allows(usual * (utility - 1)):
            return none._replace(is_trial=True)
        return choice

    @property
    def _has_lost(self) -> bool:
        """True if checks have lost too much time, which only counts if steps read from a disk."""
        return self._reads_disk and self._check_seconds > self.budget.limit

    def _trial(self, offers: Sequence[tuple[float, int]], num: int, usual: float) -> Choice | None:
        """Returns a trial of as many drafts as the budget allows; None if it allows none."""
        most = len(offers)
        if self._reads_disk:
            sizes = range(num, num + most + 1)
            most = 2 * max(filter(self.times.is_known, sizes), default=num) - num
        for count in range(min(most, len(offers)), 0, -1):
            if self.budget.allows(self._risk(offers[:count], num, usual)):
                return _of(offers[:count], num)._replace(is_trial=True)
        return None

    def _risk(self, offers: Sequence[tuple[float, int]], num: int, usual: float) -> float:
        """Returns the seconds that a trial of these drafted tokens may be expected to lose."""
        token = usual / num
        row, count = token / 2, len(offers)
        if self._reads_disk:
            return row * count
        reached = [1.0, *(chance for chance, _ in offers[: -(-count // 2)])]
        return sum(
            (before - chance) * (row * count - token * right)
            for right, (before, chance) in enumerate(pairwise(reached))
        )

    def _of_known(
        self, offers: Sequence[tuple[float, int]], num: int, usual: float
    ) -> Choice | None:
        """Returns the largest choice for which measurements show a gain; None if there is none."""
        for count in range(len(offers), 0, -1):
            tokens = num + sum([chance for chance, _ in offers[:count]])
            seconds = num * self.times.seconds(num + count)
            if self.times.is_known(num + count) and tokens * usual >= MARGIN * seconds:
                return _of(offers[:count], num)
        return None

    def _best(
        self, offers: Sequence[tuple[float, int]], num: int, usual: float
    ) -> tuple[int, float]:
        """Returns the number of drafted tokens with the highest utility, and that utility."""
        best, highest, tokens = 0, 1.0, float(num)
        for count, (chance, _) in enumerate(offers, 1):
            tokens += chance
            seconds = self.times.seconds(num + count)
            utility = tokens * usual / (num * seconds) if seconds else 1.0
            if utility > highest:
                best, highest = count, utility
        return best, highest

    def record(self, choice: Choice, seconds: float, num_tokens: int) -> None:
        """Records a step that followed `choice`: its duration, and the tokens that it yielded."""
        num, rows = len(choice.lengths), len(choice.lengths) + sum(choice.lengths)
        if rows == num or self._num_checked:
            self.times.record(rows, seconds)
        # The first check may read experts from the disk that later ones find in slots.
        self._num_checked += rows > num
        self._num_checks = self._num_checks + 1 if rows > num else 0
        usual = self.times.seconds(num)
        more = seconds - num_tokens / num * usual if rows > num else 0.0
        if self._reads_disk and self._num_checked <= _FIRST_CHECKS:
            more = min(more, max(0, rows - num_tokens) / num * usual)
        self.budget.record(seconds, max(0.0, more) if choice.is_trial else 0.0, usual)
        if rows > num:
            self._check_seconds = max(self._check_seconds + more, -_MOST_SAVED * usual)


def _best_first(chances: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """Returns the chances of all drafted tokens, highest first, with the index of the sequence."""
    if len(chances) == 1:
        return [(chance, 0) for chance in chances[0]]
    offers = [(chance, i) for i, own in enumerate(chances) for chance in own]
    return sorted(offers, key=lambda offer: -offer[0])


def _of(offers: Sequence[tuple[float, int]], num: int) -> Choice:
    """Returns a choice that checks the drafted tokens `offers`, in a step of `num` sequences."""
    gained = sum([chance for chance, _ in offers])
    return Choice(_lengths(offers, num), num + gained)


def _lengths(offers: Sequence[tuple[float, int]], num: int) -> tuple[int, ...]:
    counts = [0] * num
    for _, sequence in offers:
        counts[sequence] += 1
    return tuple(counts)


_LEAST_CHANCE = 0.15  # below this chance, a row of a check costs more than it can gain
_NUM_FIRST = 2  # drafts of one token for timing; the first may have to process the sequence so far


class ModelDrafts:
    """The measured seconds per drafted token, and the measured chance that it is accepted."""

    def __init__(self) -> None:
        self._seconds, self._chance = Average(), 0.0
        self._num_without = 0
        self._pause = MIN_PAUSE  # steps until drafts are tried again; doubles without success

    def length(self, times: StepTimes, budget: Budget, num: int, most: int) -> int:
        """Returns the number of tokens to draft for each of `num` sequences, at most `most`.

        Returns 0 if drafts are not expected to save time, and no trial is due.
        """
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
