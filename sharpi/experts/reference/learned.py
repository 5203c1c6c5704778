"""A policy that learns online which experts come next, and swaps where that gains over a margin.

The margin is steered so that loads meet a budget. The four variants differ in what they load and
when they decide: retain (this token's misses, at its end), keep (a miss, at once, without a margin:
for a tier that had to read it anyway), prefetch at the token's end, and prefetch two layers ahead.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.policy_settings import PolicyKind, PolicySettings, Swap
from sharpi.experts.reference.learned_map import LearnedMap, MapInput
from sharpi.experts.reference.policy import SlotPolicy

_RATE = 0.15
_STEERING = np.float32(0.0005)
_FIRST_MARGIN = np.float32(0.15)
_LAYERS_AHEAD, _LAST_LAYERS = 2, 4
_RANKS = 4  # of a route, the best ones: more would cost more than they gain
_NEED_RATE, _NEED_DIFFERENCE = np.float32(1 / 512), np.float32(0.06)
_MOVE_EVERY, _MOVE_AFTER = 64, 512  # tokens

Route = dict[int, list[int]]  # a token's experts by layer, best first


class _Source(NamedTuple):
    """A layer whose experts are inputs of the map, absolute or relative to the predicted layer."""

    is_absolute: bool
    layer: int
    is_of_next_token: bool


class Learned(SlotPolicy):
    """The reference of kernels/cpu/experts/policy/learned.h."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._decides_ahead = settings.kind is PolicyKind.LEARNED
        self._num_scored_at_end = _LAYERS_AHEAD if self._decides_ahead else settings.num_layers
        self._decides_within = settings.kind is PolicyKind.LEARNED_KEEP
        self._sources = _sources(settings.num_layers, self._decides_ahead)
        ranks = min(settings.experts_per_token, _RANKS)
        energy = sum(1.0 / (rank * rank) for rank in range(1, ranks + 1))
        rate = np.float32(_RATE / (len(self._sources) * energy))
        self._rank_weights = np.float32(1) / np.arange(1, ranks + 1, dtype=np.float32)
        self._maps = [
            LearnedMap(len(self._sources), settings.num_experts, rate) for _ in settings.slots
        ]
        self._margin = _FIRST_MARGIN
        self._loads_seen = self._tokens_seen = 0
        # per layer: the gain or loss by one slot more or less
        self._need = np.zeros(settings.num_layers, np.float32)
        self._batch: dict[int, list[list[int]]] = {}  # by layer: the routes of its last tokens
        self._next: Route = {}
        self.reset_sequence()

    def reset_sequence(self) -> None:
        self._scored: set[int] = set()  # layers with a score to learn from
        self._before: Route = {}
        self._present: Route | None = {} if self._decides_within else None
        self._inputs_before: dict[int, list[MapInput]] = {}  # of the scores to learn from

    def _touched(self, layer: int, experts: Sequence[int]) -> None:
        route = self._next if self._present is None or not self._decides_within else self._present
        route[layer] = list(experts)[: self.settings.experts_per_token]

    def _touched_batch(self, layer: int, routes: NDArray[np.integer]) -> None:
        self._batch[layer] = routes.tolist()

    def _worth(self, layer: int, expert: int) -> float:
        return float(self.layers[layer].access_count[expert])

    def _victim(self, layer: int) -> int:
        scores = self._maps[layer].scores
        return self.layers[layer].least(lambda expert: scores[expert])

    def _admits(self, layer: int, expert: int, victim: int) -> bool:
        return False

    def _after_use(self, layer: int) -> list[Swap]:
        scored = self._score_after(layer)
        return [] if scored is None else self._swap(scored)

    def _score_after(self, layer: int) -> int | None:
        """Returns the layer to score right after this route: itself, or two layers ahead."""
        ahead = layer + _LAYERS_AHEAD
        if self._decides_within:
            self._step_within(layer)
            return layer
        if self._decides_ahead and ahead in (self._present or {}):
            self._step(ahead)
            return ahead
        return None

    def _token_ended(self) -> list[Swap]:
        if self._batch:
            self._replay_batch()
            swaps = []
        else:
            swaps = [swap for layer in self._end_step() for swap in self._swap(layer)]
            excess = np.float32(self._total("loads") - self._loads_seen)
            excess -= np.float32(self.settings.load_budget)
            self._margin = max(np.float32(0), self._margin + _STEERING * excess)
            self._tokens_seen += 1
            swaps += self._move_slots()
        self._loads_seen = self._total("loads")
        return swaps

    def _replay_batch(self) -> None:
        """Replays the batch's last tokens as if each had been decoded; swaps nothing."""
        for token in range(min(map(len, self._batch.values()))):
            for layer, routes in self._batch.items():
                self._touched(layer, routes[token])
                self._score_after(layer)
            self._end_step()
        self._batch = {}

    def _end_step(self) -> list[int]:
        """Makes the token under way the present one; returns the layers that are now scored."""
        if self._decides_within:
            return []
        self._before, self._present, self._next = self._present or {}, self._next, {}
        scored = [each for each in sorted(self._present) if each < self._num_scored_at_end]
        for layer in scored:
            self._step(layer)
        return scored

    def _step(self, layer: int) -> None:
        """Scores a layer after the present token, and learns from its previous score."""
        assert self._present is not None
        learned = self._maps[layer]
        learned.score(self._inputs(layer, self._present, self._next))
        if layer in self._scored:
            before = self._inputs(layer, self._before, self._present)
            learned.learn(before, self._present[layer])
        learned.keep()
        self._scored.add(layer)

    def _step_within(self, layer: int) -> None:
        """Scores a layer within a token, from the newest known route of each layer."""
        assert self._present is not None
        learned, inputs = self._maps[layer], self._inputs(layer, self._present, {})
        learned.score(inputs)
        if layer in self._inputs_before:
            learned.learn(self._inputs_before[layer], self._present[layer])
        learned.keep()
        self._inputs_before[layer] = inputs

    def _inputs(self, layer: int, token: Route, next_token: Route) -> list[MapInput]:
        return [
            MapInput(index * self.settings.num_experts + expert, weight)
            for index, source in enumerate(self._sources)
            for expert, weight in zip(
                (next_token if source.is_of_next_token else token).get(
                    source.layer + (0 if source.is_absolute else layer), []
                ),
                self._rank_weights,
                strict=False,
            )
        ]

    def _swap(self, layer: int) -> list[Swap]:
        assert self._present is not None
        scores, used, swaps = self._maps[layer].scores, self._present[layer], list[Swap]()
        keeps = self._decides_within or self.settings.kind is PolicyKind.LEARNED_RETAIN
        retained = used if keeps else None
        margin = np.float32(0) if self._decides_within else self._margin
        for _ in range(self.settings.experts_per_token):
            enters, leaves = self._best_outside(layer, retained), self._victim(layer)
            if min(enters, leaves) < 0 or not scores[enters] > scores[leaves] + margin:
                break
            swaps.append(self._insert(layer, enters, leaves, early=enters not in used))
        self._measure_need(layer)
        return swaps

    def _measure_need(self, layer: int) -> None:
        scores, need = self._maps[layer].scores, self._need
        ends = self._best_outside(layer, None), self._victim(layer)
        gain, loss = (scores[end] if end >= 0 else np.float32(0) for end in ends)
        now = np.float32(0) if self.layers[layer].has_free else gain + loss
        need[layer] += (now - need[layer]) * _NEED_RATE

    def _move_slots(self) -> list[Swap]:
        """Moves one slot, every 64 tokens, from the layer of least need to that of most."""
        chosen = self.settings
        is_due = self._tokens_seen >= _MOVE_AFTER and self._tokens_seen % _MOVE_EVERY == 0
        if not (chosen.moving_slots and is_due):
            return []
        now = [slots.num_slots for slots in self.layers]
        fewest = [max(chosen.experts_per_token, slots // 2) for slots in chosen.slots]
        takers = [layer for layer, slots in enumerate(now) if slots < chosen.num_experts]
        givers = [layer for layer, slots in enumerate(now) if slots > fewest[layer]]
        if not takers or not givers:
            return []
        to = max(takers, key=lambda layer: self._need[layer])
        giver = min(givers, key=lambda layer: self._need[layer])
        victim = self._victim(giver)
        gains = self._need[to] > self._need[giver] + _NEED_DIFFERENCE
        return self._move_slot(giver, to, victim) if gains and victim >= 0 else []

    def _best_outside(self, layer: int, retained: Sequence[int] | None) -> int:
        """Returns the expert without a slot (of `retained`, if given) that scores most, or -1."""
        scores, resident = self._maps[layer].scores, self.layers[layer].resident
        may_enter = ~resident
        if retained is not None:
            may_enter &= np.isin(np.arange(len(resident)), retained)
        outside = np.flatnonzero(may_enter)
        return int(outside[np.argmax(scores[outside])]) if len(outside) else -1


def _sources(num_layers: int, decides_ahead: bool) -> list[_Source]:
    near = [_Source(False, layer, False) for layer in (0, -1, 1)]
    last = [_Source(True, num_layers - i, False) for i in range(_LAST_LAYERS, 0, -1)]
    ahead = [_Source(False, -_LAYERS_AHEAD - i, True) for i in range(3)]
    return near + last + (ahead if decides_ahead else [])
