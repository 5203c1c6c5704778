"""PinWatch: waits for the warm pin of the slots in RAM, and tells the user about it."""

from sharpi.engine.backends.pin_messages import announce_pin, missed_pin
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_settings import PolicySettings
from sharpi.experts.stats.counts import HitCount


class PinWatch:
    """Watches a policy's pin; a token looks up `accesses_per_token` experts."""

    def __init__(self, settings: PolicySettings, accesses_per_token: int) -> None:
        self._settings, self._accesses_per_token = settings, accesses_per_token
        self._due = settings.next_pin(-1)  # in lookups; None once it happened, or never does
        self._most_accesses = 0  # an upper bound

    def end_step(self, store: ExpertStore, num_tokens: int) -> None:
        """Announces the pin; asks the store only once there may be enough lookups."""
        if self._due is None:
            return
        self._most_accesses += num_tokens * self._accesses_per_token
        before = store.before_pin() if self._most_accesses >= self._due else None
        if before is not None:
            self._due = None
            announce_pin(self._settings, HitCount(*before), "RAM")

    def note(self, store: ExpertStore) -> str | None:
        """Returns a sentence if the pin that the user asked for did not happen."""
        if self._due is None:
            return None
        accesses = sum(each.accesses for each in store.counts())
        return missed_pin(self._settings, accesses, "RAM")
