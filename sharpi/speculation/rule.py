"""DraftPolicy: decides how many drafted tokens the next step checks, possibly none.

As in Cascade (arXiv 2506.20675), a step's utility is the number of tokens that it yields, divided
by its time in units of a step without drafts. Both are measured while the model runs. If drafts
would not save time, the step checks none. Trials to find that out may lose at most 2 % of the time.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sharpi.speculation.step_times import StepTimes
from sharpi.trial import MARGIN, Budget

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
        """Returns a trial of as many drafted tokens as the budget allows; None if it allows none.

        `offers` are the chances of the tokens, each with the index of its sequence. `num` is the
        number of sequences, `usual` the seconds of a step without drafts.
        """
        most = len(offers)
        if self._reads_disk:
            sizes = range(num, num + most + 1)
            most = 2 * max(filter(self.times.is_known, sizes), default=num) - num
        for count in range(min(most, len(offers)), 0, -1):
            if self.budget.allows(self._risk(offers[:count], num, usual)):
                return _of(offers[:count], num)._replace(is_trial=True)
        return None

    def _risk(self, offers: Sequence[tuple[float, int]], num: int, usual: float) -> float:
        """Returns the seconds that a trial of these drafted tokens may be expected to lose.

        Each further row is assumed to take half of the time of a step with one row. Each accepted
        token is a gain, so drafts that are almost surely accepted risk little. With a disk, no gain
        is assumed. The parameters are those of `_trial`.
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
        """Returns the largest choice for which measurements show a gain; None if there is none.

        The parameters are those of `_trial`.
        """
        for count in range(len(offers), 0, -1):
            tokens = num + sum([chance for chance, _ in offers[:count]])
            seconds = num * self.times.seconds(num + count)
            if self.times.is_known(num + count) and tokens * usual >= MARGIN * seconds:
                return _of(offers[:count], num)
        return None

    def _best(
        self, offers: Sequence[tuple[float, int]], num: int, usual: float
    ) -> tuple[int, float]:
        """Returns the number of drafted tokens with the highest utility, and that utility.

        The parameters are those of `_trial`.
        """
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
    """Returns the chances of all drafted tokens, highest first, with the index of the sequence.

    The tokens of a draft stay in order, since their chances never rise.
    """
    if len(chances) == 1:
        return [(chance, 0) for chance in chances[0]]
    offers = [(chance, i) for i, own in enumerate(chances) for chance in own]
    return sorted(offers, key=lambda offer: -offer[0])


def _of(offers: Sequence[tuple[float, int]], num: int) -> Choice:
    """Returns a choice that checks the drafted tokens `offers`, in a step of `num` sequences.

    Each offer is the chance of a token, and the index of its sequence.
    """
    gained = sum([chance for chance, _ in offers])
    return Choice(_lengths(offers, num), num + gained)


def _lengths(offers: Sequence[tuple[float, int]], num: int) -> tuple[int, ...]:
    counts = [0] * num
    for _, sequence in offers:
        counts[sequence] += 1
    return tuple(counts)
