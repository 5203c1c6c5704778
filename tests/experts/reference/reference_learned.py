"""A slot policy that learns online which experts are used next, and swaps if the gain is large.

`learned-keep` gives a missed expert a slot at once and without a margin, as its tier had to read
the expert anyway. `learned-prefetch` also prefetches, two layers ahead. A prefetch has to gain more
than a margin, which is adapted so that prefetches meet a budget.

For prefetches it learns the worth of a slot to an expert. It is 1 for a hit at the next use, plus
the expert's later worth above the threshold at which experts are evicted. That later worth is at
most the margin, since the expert could be loaded later at that price.

A prefetch needs an additional read. What prefetches read besides the misses that they save is
limited by the misses that slru would have had, and small if more than four save one miss.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from reference_learned_contexts import LearnedContexts, num_rows
from reference_learned_map import LearnedMap, MapInputs
from reference_learned_within import LearnedWithin, Route, Source, inputs_of
from reference_policy import LayerSlots, SlotPolicy
from reference_policy_ranked import Slru

from sharpi.experts.policy_settings import PolicyKind, PolicySettings, Swap
from sharpi.ops.slot_rules import real, whole

_MARGIN_RATE = np.float32(real("MarginRate"))
_KEPT, _OF_TOKEN = np.float32(real("KeptOfCredit")), np.float32(real("CreditOfToken"))
_LEAST_PAID, _PAID_RATE = np.float32(real("LeastPaid")), np.float32(real("PaidRate"))
_OF_SLRU, _EXTRA_UNPAID = np.float32(real("ReadsOfSlru")), np.float32(real("ExtraUnpaid"))
Totals = tuple[int, int, int, int]  # prefetches, misses that they saved, misses, misses of slru


class PrefetchLimits:
    """The limits of prefetches, adapted after each token.

    A prefetch has to gain more than `margin`, and there are no more than `credit` of them.
    """

    def __init__(self, load_budget: float) -> None:
        self.margin = np.float32(real("FirstMargin"))
        self.credit = np.float32(0)
        self._paid = _LEAST_PAID  # the misses that a prefetch saves
        self._budget = np.float32(load_budget)
        self._seen: Totals = 0, 0, 0, 0

    def num_prefetched(self, num_loads: int) -> int:
        """Returns the prefetches of the present token; `num_loads` is the total number so far."""
        return num_loads - self._seen[0]

    def adapt(self, now: Totals) -> None:
        """Adapts the limits after a token."""
        changes = (np.float32(a - b) for a, b in zip(now, self._seen, strict=True))
        loads, saved, misses, of_slru = changes
        budget = min(self._budget, max(np.float32(0), self.credit * _OF_TOKEN))
        self.margin = max(np.float32(0), self.margin + _MARGIN_RATE * (loads - budget))
        self._paid += (saved - self._paid * loads) * _PAID_RATE
        is_unpaid = self._paid < _LEAST_PAID
        more = _EXTRA_UNPAID * misses + saved if is_unpaid else _OF_SLRU * of_slru - misses
        if self.credit > 1:  # a single prefetch is tried at some time
            self.credit *= _KEPT
        self.credit += more - loads

    def count(self, now: Totals) -> None:
        """Sets the totals from which the next token's are counted; see `adapt`."""
        self._seen = now


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


_LAYERS_AHEAD = whole("LayersAhead")
_MORE_WITHIN = (-2, -3, -4, 2, 3, -5, -6)  # kMoreWithin of learned.cpp


class Learned(SlotPolicy):
    """The learned policies in Python, the reference implementation for learned.h in C++."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._is_prefetcher = settings.kind.prefetches
        ranks = min(settings.experts_per_token, whole("Ranks"))
        self._rank_weights = np.float32(1) / np.arange(1, ranks + 1, dtype=np.float32)
        has_more = self._is_prefetcher and settings.num_experts <= whole("FewExperts")
        self._num_sources = whole("MostLayers" if has_more else "LastLayers")
        self._more_within = _MORE_WITHIN * has_more
        own = settings.own_layers
        self._sources = _near_and_last(own.stop, self._num_sources)
        self._within = self._make_within()
        self._maps = self._make_maps() if self._is_prefetcher else []
        # sees the same routes, and counts what it would have missed
        as_slru = replace(settings, kind=PolicyKind.SLRU, warm_pin=0)
        self._slru = Slru(as_slru) if self._is_prefetcher else None
        # per layer: the average score of the expert that would be evicted next
        self._threshold = np.zeros(settings.num_layers, np.float32)
        self._limits = PrefetchLimits(settings.load_budget)
        self._tokens_seen = 0
        self._prefetches = self._learns = True
        self._needs = LearnedNeeds(settings)
        # By layer: the routes of the batch's last tokens.
        self._batch: dict[int, list[list[int]]] = {}
        self._next: Route = {}
        self.reset_sequence()

    def _make_within(self) -> LearnedWithin:
        chosen, follows = self.settings, self._is_prefetcher
        sources = self._sources + [Source(False, layer, False) for layer in self._more_within]
        rate = _step_size(
            real("RateWithin" if follows else "Rate"), len(sources), 0, len(self._rank_weights)
        )
        return LearnedWithin(
            sources, chosen.num_layers, chosen.num_experts, self._rank_weights, rate,
            _contexts(chosen, len(sources), ahead=0) if follows else None,
        )  # fmt: skip

    def _make_maps(self) -> list[LearnedMap]:
        chosen = self.settings
        self._sources = self._sources + [
            Source(False, -_LAYERS_AHEAD - i, True) for i in range(self._num_sources)
        ]
        num_sources, num_hashed = len(self._sources), num_rows(chosen.num_experts)
        self._contexts = _contexts(chosen, num_sources, _LAYERS_AHEAD)
        rate = _step_size(
            real("RateAhead"), num_sources, whole("Contexts"), len(self._rank_weights)
        )
        return [
            LearnedMap(
                num_sources,
                chosen.num_experts,
                rate,
                of_itself=0.0,
                follows_text=True,
                num_hashed=num_hashed,
            )
            for _ in chosen.slots
        ]

    def reset_sequence(self) -> None:
        # By layer: the inputs of the last scores, where these can be learned from.
        self._inputs_before: dict[int, MapInputs] = {}
        self._present: Route | None = None
        self._within.reset_sequence()

    def resize(self, layer: int, num_slots: int) -> list[Swap]:
        swaps = super().resize(layer, num_slots)
        if self._slru is not None:
            self._slru.resize(layer, self.layers[layer].num_slots)
        return swaps

    def set_prefetching(self, prefetches: bool) -> None:
        self._prefetches = prefetches
        if not self._prefetches_now:
            self._inputs_before = {}

    def set_learning(self, learns: bool) -> None:
        if learns == self._learns:
            return
        self._learns = learns
        self._within.reset_sequence()
        self._inputs_before = {}

    @property
    def _prefetches_now(self) -> bool:
        """True if scores for prefetches are computed at the moment."""
        return self._is_prefetcher and self._prefetches and self._learns

    def _scores(self, layer: int) -> NDArray[np.float32]:
        return self._maps[layer].scores if self._is_prefetcher else self._within.scores(layer)

    def _on_access(self, layer: int, experts: Sequence[int]) -> None:
        self._needs.measure(layer, self.layers[layer], experts)
        self._next[layer] = list(experts)[: self.settings.experts_per_token]

    def _on_batch_access(self, layer: int, routes: NDArray[np.integer]) -> None:
        if self._slru is not None:
            self._slru.use_batch(layer, routes)
        self._batch[layer] = routes.tolist()

    def _priority(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].access_count[expert])

    def _victim(self, layer: int) -> int:
        if not self._learns:
            return self.layers[layer].least(np.zeros(self.settings.num_experts, np.float32))
        return self._lowest(layer, self._scores(layer))

    def _lowest(self, layer: int, scores: NDArray[np.float32]) -> int:
        return self.layers[layer].least(scores)

    def _admits(self, layer: int, expert: int, victim: int) -> bool:
        return not self._learns

    def _after_use(self, layer: int) -> list[Swap]:
        if self._slru is not None:
            self._slru.use(layer, self._next[layer])
        self._score_within(layer)
        kept = list(self._keep_missed(layer))
        if not self._is_prefetcher:
            self._watch_need(layer)
        scored = self._score_ahead(layer)
        return kept if scored is None else kept + self._prefetch(scored)

    def _score_within(self, layer: int) -> None:
        if self._learns:
            self._within.step(layer, self._next[layer])

    def _score_ahead(self, layer: int) -> int | None:
        """Scores the experts of the layer two layers after `layer`, and returns its index.

        Returns None if there is no such layer, or if the policy does not prefetch now.
        """
        ahead = layer + _LAYERS_AHEAD
        if self._prefetches_now and ahead in (self._present or {}):
            self._step(ahead)
            return ahead
        return None

    def _token_ended(self) -> list[Swap]:
        if self._batch:
            self._replay_batch()
            swaps = []
        else:
            swaps = [swap for layer in self._end_step() for swap in self._prefetch(layer)]
            if self._prefetches_now:
                self._limits.adapt(self._totals)
            self._tokens_seen += 1
            swaps += self._move_slots()
        if self._slru is not None:
            self._slru.end_token()
        self._limits.count(self._totals)
        return swaps

    @property
    def _totals(self) -> Totals:
        """The counts since the start by which prefetches are limited."""
        of_slru = 0 if self._slru is None else self._slru.total_misses
        return self._total("early_loads"), self._saved, self.total_misses, of_slru

    def _replay_batch(self) -> None:
        """Learns from the last tokens of a batch as if each had been decoded; makes no swaps."""
        for token in range(min(map(len, self._batch.values()))):
            for layer, routes in self._batch.items():
                self._on_access(layer, routes[token])
                self._score_within(layer)
                self._score_ahead(layer)
            self._end_step()
        self._batch = {}

    def _end_step(self) -> list[int]:
        """Ends a token: stores its routes, and scores layers for the next token.

        Returns the indices of the layers that were scored.
        """
        if not self._is_prefetcher:
            return []
        self._present, self._next = self._next, {}
        until = self.settings.own_layers.start + _LAYERS_AHEAD if self._prefetches_now else 0
        scored = [each for each in sorted(self._present) if each < until]
        for layer in scored:
            self._step(layer)
        return scored

    def _step(self, layer: int) -> None:
        """Scores a layer for the next token, and corrects the map by its previous scores."""
        assert self._present is not None
        learned, used = self._maps[layer], self._present[layer]
        learned.count(used)
        inputs = self._inputs(layer, self._present, self._next)
        learned.score(inputs)
        if layer in self._inputs_before:
            before = self._inputs_before[layer]
            learned.learn_worth(before, used, self._threshold[layer], self._limits.margin)
        learned.keep()
        self._inputs_before[layer] = inputs

    def _inputs(self, layer: int, token: Route, next_token: Route) -> MapInputs:
        contexts = self._contexts.rows(layer, token, next_token)
        num_experts, weights = self.settings.num_experts, self._rank_weights
        return inputs_of(self._sources, layer, token, next_token, weights, num_experts, contexts)

    def _keep_missed(self, layer: int) -> Iterator[Swap]:
        """Gives slots to missed experts of this token by evicting residents with lower scores."""
        if not self._learns:
            return
        scores = self._within.scores(layer)
        for _ in range(self.settings.experts_per_token):
            enters = self._best_outside(layer, scores, self._next[layer])
            leaves = self._lowest(layer, scores)
            if min(enters, leaves) < 0 or not scores[enters] > scores[leaves]:
                return
            yield self._insert(layer, enters, leaves)

    def _prefetch(self, layer: int) -> list[Swap]:
        scores, swaps = self._maps[layer].scores, list[Swap]()
        self._measure_threshold(layer)
        for _ in range(self.settings.experts_per_token):
            enters = self._best_outside(layer, scores, None)
            leaves = self._lowest(layer, scores)
            limits, num_loads = self._limits, self._total("early_loads")
            if min(enters, leaves) < 0 or not scores[enters] > scores[leaves] + limits.margin:
                break
            if limits.num_prefetched(num_loads) + 1 > limits.credit:
                break
            swaps.append(self._insert(layer, enters, leaves, early=True))
        self._watch_need(layer)
        return swaps

    def _measure_threshold(self, layer: int) -> None:
        leaves, threshold = self._victim(layer), self._threshold
        if leaves >= 0 and not self.layers[layer].has_free:
            score = self._maps[layer].scores[leaves]
            threshold[layer] += (score - threshold[layer]) * np.float32(real("ThresholdRate"))

    def _watch_need(self, layer: int) -> None:
        outside = self._best_outside(layer, self._scores(layer), None)
        self._needs.watch(layer, outside, self._victim(layer))

    def _move_slots(self) -> list[Swap]:
        move = self._needs.move(self._tokens_seen, self.layers)
        victim = -1 if move is None else self._victim(move[0])
        return self._move_slot(*move, victim) if move is not None and victim >= 0 else []

    def _best_outside(
        self, layer: int, scores: NDArray[np.float32], retained: Sequence[int] | None
    ) -> int:
        """Returns the non-resident expert with the best score, or -1 if there is none.

        If `retained` is given, only its experts are considered.
        """
        resident = self.layers[layer].resident
        may_enter = ~resident
        if retained is not None:
            is_retained = np.zeros(len(resident), bool)
            is_retained[list(retained)] = True
            may_enter &= is_retained
        (outside,) = may_enter.nonzero()
        return int(outside[scores[outside].argmax()]) if len(outside) else -1


def _step_size(rate: float, num_sources: int, num_contexts: int, ranks: int) -> np.float32:
    energy = sum(1.0 / (rank * rank) for rank in range(1, ranks + 1))
    return np.float32(rate / (num_sources * energy + num_contexts))


def _near_and_last(end_layer: int, num_last: int) -> list[Source]:
    near = [Source(False, layer, False) for layer in (0, -1, 1)]
    return near + [Source(True, end_layer - i, False) for i in range(num_last, 0, -1)]


def _contexts(settings: PolicySettings, num_sources: int, ahead: int) -> LearnedContexts:
    first_row = num_sources * settings.num_experts
    return LearnedContexts(
        settings.own_layers, settings.num_experts, first_row=first_row, ahead=ahead
    )
