"""MissChoice: what is done about experts a card has not, by what is quickest on the running model.

Modes take turns of some tokens each, and the medians of their times are compared. The verdict
stands for a while and is then tried again, for fewer tokens: the machine may have other work by
then, or the text another mix of experts.
"""

from collections.abc import Sequence
from statistics import median

from sharpi.ops.cuda.values import MissMode

TURN = 12  # tokens
SETTLING = 3  # of a turn that are not counted: kernels load, and a graph is captured
ROUNDS = 2
TOKENS_UNTIL_RETRIAL = 2048
NOTABLE = 1.05  # how much quicker another mode has to be to take over


class MissChoice:
    """Fed with the seconds of every decoded token, says how the next one's misses are served."""

    def __init__(self, modes: Sequence[MissMode]) -> None:
        self._modes = tuple(modes)
        self.verdict: MissMode = self._modes[0]
        self.seconds: dict[MissMode, float] = {}  # of a token, by the last trial
        self._token = 0
        self._rest = 0  # tokens until the next trial
        self._times: dict[MissMode, list[float]] = {mode: [] for mode in modes}

    @property
    def mode(self) -> MissMode:
        """The next token's."""
        if len(self._modes) == 1 or self._rest:
            return self.verdict
        return self._modes[self._token // TURN % len(self._modes)]

    def record(self, seconds: float) -> bool:
        """One token took so long; returns whether the verdict changed."""
        if len(self._modes) == 1:
            return False
        if self._rest:
            self._rest -= 1
            return False
        if self._token % TURN >= SETTLING:
            self._times[self.mode].append(seconds)
        self._token += 1
        return self._token == TURN * ROUNDS * len(self._modes) and self._judge()

    def _judge(self) -> bool:
        before = self.verdict if self.seconds else None
        self.seconds = {mode: median(times) for mode, times in self._times.items()}
        best = min(self._modes, key=lambda mode: self.seconds[mode])
        if before is None or self.seconds[before] > NOTABLE * self.seconds[best]:
            self.verdict = best
        self._token, self._rest = 0, TOKENS_UNTIL_RETRIAL
        for times in self._times.values():
            times.clear()
        return before is not None and before != self.verdict
