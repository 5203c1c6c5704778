"""Rule: decides how many drafts the next step checks, which may be none.

After Cascade (arXiv 2506.20675): a step's utility is the number of tokens that it yields, divided
by its time in units of a step without drafts. Both are measured while the model runs. If drafts
would not gain time, the step checks none. Trials to find that out may lose at most 2 % of the time.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sharpi.speculation.step_times import StepTimes
from sharpi.speculation.trial_budget import TrialBudget

_LEAST_UTILITY = 1.03  # leaves a margin for the error of measurements
# If experts come from a disk, one stall may take as long as several steps. One of the first checks
# must not use up the budget, so it counts as at most as many steps as it has rows.
_FIRST_CHECKS = 4
_STALE_AFTER = 64  # checks after which a step without drafts is measured again


class Choice(NamedTuple):
    """The number of drafts to check of each sequence, and the expected tokens of the step."""

    lengths: tuple[int, ...]
    num_tokens: float
    is_trial: bool = False


class Rule:
    """Chooses by the measured times of all steps of one engine.

    With `reads_disk`, steps may read experts from a disk, so that a first check of many rows may
    take as long as several steps. A trial then has at most twice as many rows as were measured.
    """

    def __init__(self, *, reads_disk: bool = False) -> None:
        self._reads_disk = reads_disk
        self.times = StepTimes(trusts_one=not reads_disk)
        self.budget = TrialBudget()
        self._num_checks = 0  # checks since the last step without drafts
        self._num_checked = 0  # checks so far

    def choose(self, chances: Sequence[Sequence[float]], most: int) -> Choice:
        """Chooses how many drafted tokens of each sequence to check, at most `most` in all.

        `chances` has a list for each sequence of the step, perhaps empty: for each drafted token
        the chance that it and all before it are right.
        """
        num = len(chances)
        none = Choice((0,) * num, float(num))
        offers = _best_first(chances)[:most]
        if not offers or not self.times.count(num) or self._has_lost:
            return none
        usual = self.times.seconds(num)
        best, utility = self._best(offers, num, usual)
        if best == 0 or utility < _LEAST_UTILITY:
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
        """True if checks have lost too much; their times scatter if they read from a disk."""
        return self._reads_disk and self.budget.is_overdrawn

    def _trial(self, offers: Sequence[tuple[float, int]], num: int, usual: float) -> Choice | None:
        """Returns a trial of as many offers as the budget allows; None if it allows none."""
        most = len(offers)
        if self._reads_disk:
            sizes = range(num, num + most + 1)
            most = 2 * max(filter(self.times.is_known, sizes), default=num) - num
        for count in range(min(most, len(offers)), 0, -1):
            if self.budget.allows(self._risk(offers[:count], num, usual)):
                return _of(offers[:count], num)._replace(is_trial=True)
        return None

    def _risk(self, offers: Sequence[tuple[float, int]], num: int, usual: float) -> float:
        """Returns the seconds that a trial of these offers is expected to lose at most.

        A further row costs about half of a step of its own. Each accepted offer gives a token, so
        drafts that are almost surely accepted risk little. With a disk, it assumes that nothing is
        gained.
        """
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
        """Returns the choice of the most offers whose step is known to gain; None without one."""
        for count in range(len(offers), 0, -1):
            tokens = num + sum([chance for chance, _ in offers[:count]])
            seconds = num * self.times.seconds(num + count)
            if self.times.is_known(num + count) and tokens * usual >= _LEAST_UTILITY * seconds:
                return _of(offers[:count], num)
        return None

    def _best(
        self, offers: Sequence[tuple[float, int]], num: int, usual: float
    ) -> tuple[int, float]:
        """Returns the number of offers with the highest utility, and that utility."""
        best, highest, tokens = 0, 1.0, float(num)
        for count, (chance, _) in enumerate(offers, 1):
            tokens += chance
            seconds = self.times.seconds(num + count)
            utility = tokens * usual / (num * seconds) if seconds else 1.0
            if utility > highest:
                best, highest = count, utility
        return best, highest

    def record(self, choice: Choice, seconds: float, num_tokens: int) -> None:
        """Records a step with this choice: its duration, and the tokens that it yielded."""
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
            self.budget.check(more)


def _best_first(chances: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """Lists the drafted tokens with the likeliest first, each with the index of its sequence.

    The tokens of a draft stay in order, since their chances never rise.
    """
    if len(chances) == 1:
        return [(chance, 0) for chance in chances[0]]
    offers = [(chance, i) for i, own in enumerate(chances) for chance in own]
    return sorted(offers, key=lambda offer: -offer[0])


def _of(offers: Sequence[tuple[float, int]], num: int) -> Choice:
    """Returns the choice that takes these offers."""
    gained = sum([chance for chance, _ in offers])
    return Choice(_lengths(offers, num), num + gained)


def _lengths(offers: Sequence[tuple[float, int]], num: int) -> tuple[int, ...]:
    counts = [0] * num
    for _, sequence in offers:
        counts[sequence] += 1
    return tuple(counts)
