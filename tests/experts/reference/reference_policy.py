"""SlotPolicy: decides which experts have a slot; the base of all reference policies.

A policy only decides. It returns every change as a Swap, which its caller has to carry out. The
state of the policy is already the state after the swap.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.policy_settings import Counts, PolicyKind, PolicySettings, Swap
from sharpi.ops.slot_rules import whole


class LayerSlots:
    """The state of one layer's slots and experts.

    It is the reference implementation for kernels/cpu/experts/policy/policy_slots.h.
    """

    def __init__(self, num_experts: int, num_slots: int) -> None:
        self.num_slots = min(num_slots, num_experts)
        self.clock = 0  # how often the layer was used
        self.is_active = False  # a token's experts are in use until it ends
        self.resident = np.zeros(num_experts, bool)
        self.pinned = np.zeros(num_experts, bool)
        self.last_used = np.full(num_experts, -1)
        self.stamp = np.full(num_experts, -1)  # order of recency; demotion renews the stamp, too
        self.access_count = np.zeros(num_experts, np.int64)

    @property
    def has_free(self) -> bool:
        return int(np.count_nonzero(self.resident)) < self.num_slots

    def begin_use(self, experts: Sequence[int]) -> None:
        """Counts the use of `experts` by a token or batch, and marks them as in use.

        An expert that occurs several times is counted several times.
        """
        self.clock += 1
        self.is_active = True
        for expert in experts:
            self.last_used[expert] = self.stamp[expert] = self.clock
            self.access_count[expert] += 1

    def least(self, keys: NDArray[np.float32]) -> int:
        """Returns the expert with the lowest key among those that may be evicted; -1 if none may.

        `keys` (experts,). Ties go to the least recently used expert, then to the lowest id.
        """
        may_leave = self.resident & ~self.pinned
        if self.is_active:
            may_leave &= self.last_used != self.clock
        (leaving,) = may_leave.nonzero()
        if not len(leaving):
            return -1
        lowest = leaving[keys[leaving] == keys[leaving].min()]
        return int(lowest[self.stamp[lowest].argmin()])


class SlotPolicy(ABC):
    """Handles lookups, free slots, pins and batches.

    Subclasses choose the experts to evict, and decide whether a missed expert gets a slot.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.layers = [LayerSlots(settings.num_experts, slots) for slots in settings.slots]
        self.accesses_before_pin = self.hits_before_pin = -1
        self._next_pin = settings.next_pin(-1)
        self._tallies: list[Counter[str]] = [Counter() for _ in settings.slots]
        # (layer, expert) loaded before use and not used since.
        self._early: set[tuple[int, int]] = set()
        # By layer, for each expert in `_early`: the expert that would be resident in its place.
        self._displaced: list[dict[int, int]] = [{} for _ in settings.slots]
        self._saved = 0  # misses that early loads saved, less the misses that they caused
        for layer in range(settings.num_layers):
            for expert in self._chosen_pins(layer, settings.pins(layer)):
                self.layers[layer].pinned[expert] = True

    def start(self) -> list[Swap]:
        """Returns the swaps that load pinned experts, and then `warm` ones into free slots.

        Call it before the first token. Without this call, pinned experts are loaded when first
        used.
        """
        pinned = [
            self._insert(layer, int(expert), -1)
            for layer, slots in enumerate(self.layers)
            for expert in np.flatnonzero(slots.pinned & ~slots.resident)
        ]
        warm = enumerate(self.settings.warm)
        return pinned + [swap for layer, ids in warm for swap in self._fill(layer, ids)]

    def _fill(self, layer: int, experts: Iterable[int]) -> Iterable[Swap]:
        slots = self.layers[layer]
        for expert in experts:
            takes = slots.has_free and self._may_take_free(layer, expert)
            if takes and not slots.resident[expert]:
                yield self._insert(layer, expert, -1)

    def use(self, layer: int, experts: Sequence[int]) -> list[Swap]:
        """Records a token's use of distinct experts of a layer, best first; returns the swaps.

        All experts are looked up before any slot changes, and none of them is evicted. A swap in
        another layer is a prefetch.
        """
        slots = self.layers[layer]
        slots.begin_use(experts)
        missed = [expert for expert in experts if not self._look_up(layer, expert)]
        self._on_access(layer, experts)
        swaps = [swap for expert in missed for swap in self._place(layer, expert)]
        return swaps + self._after_use(layer)

    def use_batch(self, layer: int, routes: NDArray[np.integer]) -> list[Swap]:
        """Records a batch's use of experts, `routes` (tokens, k); returns the swaps.

        Each distinct expert is one access. Nothing is evicted; the experts of the highest priority
        at the end of the batch get the free slots.
        """
        slots = self.layers[layer]
        slots.begin_use(routes.reshape(-1).tolist())
        experts = np.unique(routes).tolist()
        for expert in experts:
            self._look_up(layer, expert)
        self._on_batch_access(layer, routes[-whole("BatchMemory") :])
        swaps: list[Swap] = []
        for expert in sorted(experts, key=lambda e: -self._priority(layer, e)):
            takes = slots.has_free and self._may_take_free(layer, expert)
            if takes and not slots.resident[expert]:
                swaps.append(self._insert(layer, expert, -1))
        return swaps

    def exchange(self, layer: int, leaves: int, enters: int) -> bool:
        """Replaces expert `leaves` by `enters` in its slot; another tier has decided on this.

        Call it between steps. It does not count as a load. Returns False, and changes nothing, if
        `leaves` is not resident or is pinned, or if `enters` is resident.
        """
        slots = self.layers[layer]
        if not slots.resident[leaves] or slots.resident[enters] or slots.pinned[leaves]:
            return False
        slots.resident[[leaves, enters]] = False, True
        slots.stamp[enters] = slots.clock
        self._early -= {(layer, leaves), (layer, enters)}
        for expert in (leaves, enters):
            self._displaced[layer].pop(expert, None)
        self._evicted(layer, leaves)
        self._inserted(layer, enters)
        return True

    def end_token(self) -> list[Swap]:
        """Ends a token or batch after its last layer; returns the swaps to make now."""
        for slots in self.layers:
            slots.is_active = False
        swaps = self._token_ended()
        accesses, hits = self._total("accesses"), self._total("hits")
        if self._next_pin is not None and accesses >= self._next_pin:
            if self.accesses_before_pin < 0:
                self.accesses_before_pin, self.hits_before_pin = accesses, hits
            self._next_pin = self.settings.next_pin(accesses)
            swaps += [swap for layer in range(len(self.layers)) for swap in self._warm_pin(layer)]
        return swaps

    def reset_sequence(self) -> None:  # noqa: B027 (most policies have nothing to forget)
        """Prepares for a new, unrelated text: forgets the previous token, but nothing learned."""

    def set_learning(self, learns: bool) -> None:  # noqa: B027
        """Turns learning on or off; off, a policy that keeps missed experts acts like lru."""

    def set_prefetching(self, prefetches: bool) -> None:  # noqa: B027
        """Allows or forbids loads of experts that were not missed."""

    def resident(self, layer: int, expert: int) -> bool:
        return bool(self.layers[layer].resident[expert])

    def counts(self, layer: int) -> Counts:
        return Counts(**self._tallies[layer])

    @abstractmethod
    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        """Updates the subclass's records by a token's experts, after lookup and before swaps."""

    @abstractmethod
    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Updates the subclass's records by the last tokens of a batch, `routes` (tokens, k)."""

    @abstractmethod
    def _priority(self, layer: int, expert: int) -> float:
        """Returns the priority of an expert of a batch; higher values are kept first."""

    @abstractmethod
    def _victim(self, layer: int) -> int:
        """Returns the expert to evict if no slot is free; -1 if none may be evicted."""

    def _admits(self, layer: int, expert: int, victim: int) -> bool:
        return True

    def _may_take_free(self, layer: int, expert: int) -> bool:
        return True

    def _inserted(self, layer: int, expert: int) -> None:  # noqa: B027
        """Updates the subclass's records after an expert got a slot."""

    def _evicted(self, layer: int, expert: int) -> None:  # noqa: B027
        """Updates the subclass's records after an expert lost its slot."""

    def _was_pinned(self, layer: int, expert: int) -> None:  # noqa: B027
        """Updates the subclass's records after a resident expert was pinned."""

    def _after_use(self, layer: int) -> list[Swap]:
        return []

    def _token_ended(self) -> list[Swap]:
        return []

    def _insert(self, layer: int, expert: int, victim: int, *, early: bool = False) -> Swap:
        slots, tally = self.layers[layer], self._tallies[layer]
        if victim >= 0:
            slots.resident[victim] = False
            self._note_victim(layer, expert, victim, early=early)
            self._note_waste(layer, victim)
        slots.resident[expert] = True
        if victim >= 0:
            self._evicted(layer, victim)
        self._inserted(layer, expert)
        tally["loads"] += 1
        if early:
            self._early.add((layer, expert))
            tally["early_loads"] += 1
        return Swap(layer, expert, victim)

    def _note_victim(self, layer: int, expert: int, victim: int, *, early: bool) -> None:
        """Records which experts would be resident if no expert had been loaded early.

        `expert` has evicted `victim`, after a miss or by an early load. Without early loads, a miss
        would have evicted an expert that an early load evicted, and `victim` would still be
        resident.
        """
        displaced = self._displaced[layer]
        stays = displaced.pop(victim, victim)
        same = [loaded for loaded, other in displaced.items() if other == expert]
        place = min(same, default=expert if early else min(displaced, default=-1))
        if place >= 0:
            displaced[place] = stays

    def _note_waste(self, layer: int, victim: int) -> None:
        """Forgets that `victim`, which is evicted, was loaded early and not used."""
        self._early.discard((layer, victim))
        self._displaced[layer].pop(victim, None)

    def _move_slot(self, layer: int, to_layer: int, victim: int) -> list[Swap]:
        """Moves a slot from `layer` to `to_layer`; returns the swap if it has to evict `victim`.

        If `layer` has a free slot, nothing is evicted, and the list is empty.
        """
        self.layers[to_layer].num_slots += 1
        return self._take_slot(layer, victim)

    def _take_slot(self, layer: int, victim: int) -> list[Swap]:
        slots, taken = self.layers[layer], list[Swap]()
        if not slots.has_free:
            slots.resident[victim] = False
            self._note_waste(layer, victim)
            self._evicted(layer, victim)
            taken = [Swap(layer, -1, victim)]
        slots.num_slots -= 1
        return taken

    def resize(self, layer: int, num_slots: int) -> list[Swap]:
        """Gives a layer `num_slots` slots; returns a swap without an expert for each that leaves.

        The policy chooses who leaves. If only pinned experts are left, it is the least used one.
        """
        slots, swaps = self.layers[layer], list[Swap]()
        while slots.num_slots > num_slots:
            victim = -1 if slots.has_free else self._victim(layer)
            if victim < 0 and not slots.has_free:
                pinned = np.flatnonzero(slots.resident)
                victim = int(pinned[slots.access_count[pinned].argmin()])
            swaps += self._take_slot(layer, victim)
        slots.num_slots = num_slots
        return swaps

    @property
    def total_misses(self) -> int:
        """The misses in all layers since the start."""
        return self._total("accesses") - self._total("hits")

    def _total(self, what: str) -> int:
        return sum(tally[what] for tally in self._tallies)

    def _look_up(self, layer: int, expert: int) -> bool:
        tally, is_hit = self._tallies[layer], self.resident(layer, expert)
        tally["accesses"] += 1
        tally["hits"] += is_hit
        if (layer, expert) in self._early:
            self._early.remove((layer, expert))
            self._saved += self._displaced[layer].pop(expert, None) is not None
            tally["early_hits"] += 1
        if not is_hit:  # only early loads displace anything
            self._saved -= list(self._displaced[layer].values()).count(expert)
        return is_hit

    def _place(self, layer: int, expert: int) -> Iterable[Swap]:
        slots = self.layers[layer]
        if slots.has_free:
            return [self._insert(layer, expert, -1)] if self._may_take_free(layer, expert) else []
        victim = self._victim(layer)
        is_let_in = bool(slots.pinned[expert]) or self._admits(layer, expert, victim)
        return [self._insert(layer, expert, victim)] if victim >= 0 and is_let_in else []

    def _chosen_pins(self, layer: int, experts: Iterable[int]) -> list[int]:
        """Returns those of `experts` that may still be pinned, in order, within the limit."""
        slots = self.layers[layer]
        is_all = self.settings.kind is PolicyKind.STATIC
        max_pins = (slots.num_slots if is_all else slots.num_slots // 2) - int(slots.pinned.sum())
        unpinned = [expert for expert in dict.fromkeys(experts) if not slots.pinned[expert]]
        return unpinned[: max(0, max_pins)]

    def _warm_pin(self, layer: int) -> Iterable[Swap]:
        slots, swaps = self.layers[layer], list[Swap]()
        if self.settings.kind is PolicyKind.STATIC:
            slots.pinned[:] = False
        most_used = np.argsort(-slots.access_count, kind="stable")[: self.settings.warm_pin]
        for expert in self._chosen_pins(layer, most_used.tolist()):
            slots.pinned[expert] = True
            if slots.resident[expert]:
                self._was_pinned(layer, expert)
            else:
                swaps += self._place(layer, expert)
        return swaps
