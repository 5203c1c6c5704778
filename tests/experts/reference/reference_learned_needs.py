"""LearnedNeeds: estimates what each layer would gain from one more slot, and lose with one less."""

from collections.abc import Sequence

import numpy as np
from reference_policy_slots import LayerSlots

from sharpi.experts.policy_settings import PolicySettings
from sharpi.ops.slot_rules import real, whole

_RATE, _DIFFERENCE = np.float32(real("NeedRate")), np.float32(real("NeedDifference"))
_MOVE_EVERY, _MOVE_AFTER = whole("MoveEvery"), whole("MoveAfter")  # tokens


class LearnedNeeds:
    """Measures how often two experts of each layer are used: its best non-resident and its victim.

    These rates can be compared between layers. Scores cannot, as each layer has its own scale.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings
        # By layer, until its next use: the expert that one more slot would keep, and the one that
        # one slot less would evict.
        self._ends: dict[int, tuple[int, int]] = {}
        # per layer: how often those two experts were used
        self._gain = np.zeros(settings.num_layers, np.float32)
        self._loss = np.zeros(settings.num_layers, np.float32)

    def watch(self, layer: int, outside: int, victim: int) -> None:
        """Sets the two experts to watch until the layer's next use.

        `outside` is the non-resident expert with the best score, `victim` the next one to evict.
        """
        self._ends[layer] = outside, victim

    def measure(self, layer: int, slots: LayerSlots, experts: Sequence[int]) -> None:
        """Updates the layer's rates by a use of `experts`."""
        if layer not in self._ends:
            return
        for end, need in zip(self._ends.pop(layer), (self._gain, self._loss), strict=True):
            is_used = not slots.has_free and end in experts
            need[layer] += (np.float32(is_used) - need[layer]) * _RATE

    def move(self, num_tokens: int, layers: Sequence[LayerSlots]) -> tuple[int, int] | None:
        """Returns a pair of layers, of which the first should give a slot to the second.

        The first one loses least, the second one gains most. Returns None if that gains too little,
        and for all tokens but every 64th.
        """
        chosen = self._settings
        is_due = num_tokens >= _MOVE_AFTER and num_tokens % _MOVE_EVERY == 0
        if not (chosen.moving_slots and is_due):
            return None
        now = [slots.num_slots for slots in layers]
        fewest = [max(chosen.experts_per_token, slots // 2) for slots in chosen.slots]
        targets = [layer for layer, slots in enumerate(now) if slots < chosen.num_experts]
        sources = [layer for layer, slots in enumerate(now) if slots > fewest[layer]]
        if not targets or not sources:
            return None
        target = max(targets, key=lambda layer: self._gain[layer])
        source = min(sources, key=lambda layer: self._loss[layer])
        return (source, target) if self._gain[target] > self._loss[source] + _DIFFERENCE else None
