"""ModelDrafts: decides how many tokens a draft model or MTP head drafts, as drafting takes time."""

from sharpi.speculation.step_times import StepTimes
from sharpi.trial import MARGIN, MIN_PAUSE, NEWEST_SHARE, Average, Budget

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
