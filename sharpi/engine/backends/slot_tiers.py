"""SlotTiers: the slots of several GPUs as one; which experts stay pinned in slots."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from sharpi.engine.backends.model_part import SlotTier
from sharpi.experts.layer_stats import HitCount, sum_of_hits
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.stats.stats import ExpertStats, PredictionStats
from sharpi.system.process import print_running_note

if TYPE_CHECKING:
    from sharpi.experts.stats.stats_collect import ExpertView, RunFacts


class SlotTiers:
    """The slots of several GPUs, in the order of their layers."""

    def __init__(self, tiers: Sequence[SlotTier]) -> None:
        self._tiers = tuple(tiers)

    def stats(self, run: "RunFacts") -> "ExpertStats | None":
        found = [tier.stats(run) for tier in self._tiers]
        made = [stats for stats in found if stats is not None]
        return _joined_stats(made) if made else None

    def loads_and_pins(self) -> dict[int, tuple[int, list[int]]]:
        return dict(chain.from_iterable(tier.loads_and_pins().items() for tier in self._tiers))

    def pin_note(self) -> str | None:
        return next(filter(None, (tier.pin_note() for tier in self._tiers)), None)

    def view(self) -> "ExpertView | None":
        found = [tier.view() for tier in self._tiers]
        views = [view for view in found if view is not None]
        return _joined_views(views) if views else None


def _joined_stats(all_stats: "Sequence[ExpertStats]") -> "ExpertStats":
    first = all_stats[0]
    return replace(
        first,
        layers=tuple(chain.from_iterable(stats.layers for stats in all_stats)),
        before_pin=sum_of_hits(stats.before_pin for stats in all_stats),
        after_pin=sum_of_hits(stats.after_pin for stats in all_stats),
        prediction=_joined_predictions([e.prediction for e in all_stats if e.prediction]),
        notes=tuple(dict.fromkeys(chain.from_iterable(stats.notes for stats in all_stats))),
    )


def _joined_predictions(found: "Sequence[PredictionStats]") -> "PredictionStats | None":
    """Returns the sums of all GPUs' prediction counts; None if no GPU predicts."""
    if not found:
        return None
    return replace(
        found[0],
        is_on=any(each.is_on for each in found),
        steps=max(each.steps for each in found),
        predicted_steps=max(each.predicted_steps for each in found),
        guessed=sum(each.guessed for each in found),
        used=sum(each.used for each in found),
        right=sum(each.right for each in found),
        bytes_moved=sum(each.bytes_moved for each in found),
    )


def _joined_views(views: "Sequence[ExpertView]") -> "ExpertView":
    counts = [view.counts for view in views if view.counts is not None]
    return replace(
        views[0],
        layers=tuple(chain.from_iterable(view.layers for view in views)),
        slots=tuple(chain.from_iterable(view.slots for view in views)),
        resident=np.concatenate([view.resident for view in views]),
        uses=np.concatenate([view.uses for view in views]),
        counts=tuple(chain.from_iterable(counts)) or None,
    )


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


class PinMonitor:
    """Reports once the most used experts in RAM slots are pinned, or that they were not."""

    def __init__(self, settings: PolicySettings, accesses_per_token: int) -> None:
        self._settings, self._accesses_per_token = settings, accesses_per_token
        # In lookups; None once it has happened, or if it never will.
        self._due = settings.next_pin(-1)
        self._most_accesses = 0  # an upper bound of the lookups

    def end_step(self, store: ExpertStore, num_tokens: int) -> None:
        """Reports the pin on stderr once it has happened."""
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
        accesses = sum(each.total.accesses for each in store.layers())
        return missed_pin(self._settings, accesses, "RAM")
