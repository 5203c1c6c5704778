"""PolicyTrials: measures, while a model runs, which parts of the default policy save time.

First it times tokens with and without prefetching. Then it compares the learned policy with lru,
which evicts the least recently used expert.
"""

from sharpi.trial import Trial

# At first after a change, the slots still hold the experts that the other policy chose.
_LEARNING_WARM_UP = 8


class PolicyTrials:
    """Receives the duration of every decoded token, and decides how the next one uses the slots.

    The trial `prefetch` is None if the policy does not prefetch. The trial `learning` is None if
    the learned policy must not be replaced by lru.
    """

    def __init__(self, *, may_prefetch: bool, may_fall_back: bool) -> None:
        on_and_off = (True, False)
        self.prefetch = Trial(on_and_off, default=True) if may_prefetch else None
        self.learning = (
            Trial(on_and_off, default=True, warm_up=_LEARNING_WARM_UP) if may_fall_back else None
        )

    @property
    def prefetches_now(self) -> bool:
        """True if the next token prefetches."""
        return self.prefetch is not None and self.learns_now and self.prefetch.choice

    @property
    def prefetches(self) -> bool:
        """True if prefetching is on by the latest decision; used for steps outside the trials."""
        return self.prefetch is not None and self.learns and self.prefetch.fastest

    @property
    def learns(self) -> bool:
        """True if the learned policy is on by the latest decision, False if lru replaces it."""
        return self.learning is None or self.learning.fastest

    @property
    def learns_now(self) -> bool:
        """True if the policy learns during the next token; False if it evicts as lru does."""
        if self.learning is None or self._tries_prefetch:
            return self.learns
        return self.learning.choice

    @property
    def is_usual(self) -> bool:
        """True if the next token uses the decided setting, False if it tries the alternative."""
        return (self.learns_now, self.prefetches_now) == (self.learns, self.prefetches)

    @property
    def _tries_prefetch(self) -> bool:
        """True if the next token belongs to a trial of prefetching, which needs learning on."""
        return self.prefetch is not None and self.learns and not self.prefetch.is_settled

    def record(self, seconds: float) -> str | None:
        """Records a token's duration; returns a message to the user if a decision changed."""
        tries_prefetch = self._tries_prefetch
        is_prefetch_timed = tries_prefetch or self.learning is None or self.learning.is_settled
        prefetch = self.prefetch if self.learns and is_prefetch_timed else None
        if prefetch is not None and prefetch.record(seconds):
            return prefetch_note(prefetch)
        if self.learning is not None and not tries_prefetch and self.learning.record(seconds):
            return _learning_note(self.learning)
        return None


def prefetch_note(trial: Trial[bool]) -> str:
    """Returns the message to the user after a decision about prefetching has changed."""
    return (
        f"prefetching of predicted experts switched {'on again' if trial.fastest else 'off'}:"
        f" tokens took {trial.ratio(True, False):.2f} times as long with it as without"
    )


def _learning_note(trial: Trial[bool]) -> str:
    ratio = f"{trial.ratio(True, False):.2f} times as long with the learned policy as with lru"
    if trial.fastest:
        return f"the learned policy decides about slots again: tokens took {ratio}"
    return f"slots now evict the oldest expert, without prefetch: tokens took {ratio}"
