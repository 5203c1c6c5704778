"""PolicyTrials: measures, while a model runs, which parts of the default policy save time.

First it times tokens with and without prefetching. Then it compares the learned policy with lru,
which evicts the least recently used expert. The periods with lru are longer, because the slots at
first still hold the experts that the learned policy chose.
"""

from sharpi.experts.prediction_trial import PredictionTrial, TrialTimes

LEARNING_TIMES = TrialTimes(period=96, without=32, warm_up=8, periods=3, pause=4096)


class PolicyTrials:
    """Receives the duration of every decoded token, and decides how the next one uses the slots.

    The trial `prefetch` is None if the policy does not prefetch. The trial `learning` is None if
    the learned policy must not be replaced by lru.
    """

    def __init__(self, *, may_prefetch: bool, may_fall_back: bool) -> None:
        self.prefetch = PredictionTrial() if may_prefetch else None
        self.learning = PredictionTrial(LEARNING_TIMES) if may_fall_back else None

    @property
    def prefetches_now(self) -> bool:
        """True if the next token prefetches."""
        return self.prefetch is not None and self.learns_now and self.prefetch.predicts_now

    @property
    def prefetches(self) -> bool:
        """True if prefetching is on by the latest decision; used for steps outside the trials."""
        return self.prefetch is not None and self.learns and self.prefetch.is_on

    @property
    def learns(self) -> bool:
        """True if the learned policy is on by the latest decision, False if lru replaces it."""
        return self.learning is None or self.learning.is_on

    @property
    def learns_now(self) -> bool:
        """True if the policy learns during the next token; False if it evicts as lru does."""
        if self.learning is None or self._tries_prefetch:
            return self.learns
        return self.learning.predicts_now

    @property
    def is_usual(self) -> bool:
        """True if the next token uses the decided setting, False if it tries the alternative."""
        return (self.learns_now, self.prefetches_now) == (self.learns, self.prefetches)

    @property
    def _tries_prefetch(self) -> bool:
        """True if the next token belongs to a trial of prefetching, which needs learning on."""
        return self.prefetch is not None and self.learns and not self.prefetch.is_settled

    def record(self, seconds: float) -> str | None:
        """Records one token's duration.

        Returns a message to the user if a decision changed, otherwise None.
        """
        if self.prefetch is not None and self._tries_prefetch:
            return self.prefetch.decision_note if self.prefetch.record(seconds) else None
        if self.prefetch is not None and self.learns:
            self.prefetch.record(seconds)
        if self.learning is not None and self.learning.record(seconds):
            return self._learning_note
        return None

    @property
    def _learning_note(self) -> str:
        assert self.learning is not None
        ratio = f"{self.learning.ratio:.2f} times as long with the learned policy as with lru"
        if self.learning.is_on:
            return f"the learned policy decides about slots again: tokens took {ratio}"
        return f"slots now evict the oldest expert, without prefetch: tokens took {ratio}"
