"""Warm pins: after a number of lookups, the most used experts of each layer are pinned.

Messages tell the user when that has happened or, at the end of a run, why it has not.
"""

from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.stats.counts import HitCount
from sharpi.system.process import print_running_note


def announce_pin(settings: PolicySettings, before: HitCount, tier: str) -> None:
    """Tells the user on stderr that a tier's slots now keep the most used experts."""
    rate = f"{100 * (before.rate or 0):.1f} %"
    print_running_note(
        f"{_what(settings)} in {tier} after {before.accesses} lookups, of which {rate} hit"
    )


def missed_pin(settings: PolicySettings, accesses: int, tier: str) -> str | None:
    """Returns a sentence about a pin that did not happen; None if no pin was due or nothing ran."""
    due = settings.next_pin(-1)
    if due is None or not accesses:
        return None
    name = "frequency set" if settings.kind is PolicyKind.STATIC else "warm pin"
    return f"no {name} in {tier}: there were {accesses} lookups of experts, and it is due at {due}"


def _what(settings: PolicySettings) -> str:
    if settings.kind is PolicyKind.STATIC:
        return "frequency set: the most used experts of each layer got the slots"
    most = max(settings.slots) // 2
    pinned = min(settings.warm_pin, most)
    experts = "expert" if pinned == 1 else f"{pinned} experts"
    return f"warm pin: the most used {experts} of each layer pinned"


class PinWatch:
    """Reports when the most used experts in RAM slots are pinned, or that they were not.

    A token looks up `accesses_per_token` experts.
    """

    def __init__(self, settings: PolicySettings, accesses_per_token: int) -> None:
        self._settings, self._accesses_per_token = settings, accesses_per_token
        # In lookups; None once it has happened, or if it never will.
        self._due = settings.next_pin(-1)
        self._most_accesses = 0  # an upper bound of the lookups

    def end_step(self, store: ExpertStore, num_tokens: int) -> None:
        """Reports the pin on stderr once it has happened.

        Reads the store's counts only once the tokens so far may have caused enough lookups.
        """
        if self._due is None:
            return
        self._most_accesses += num_tokens * self._accesses_per_token
        before = store.before_pin() if self._most_accesses >= self._due else None
        if before is not None:
            self._due = None
            announce_pin(self._settings, HitCount(*before), "RAM")

    def note(self, store: ExpertStore) -> str | None:
        """Returns a note if the most used experts were to be pinned and were not, else None."""
        if self._due is None:
            return None
        accesses = sum(each.accesses for each in store.counts())
        return missed_pin(self._settings, accesses, "RAM")
