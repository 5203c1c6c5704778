"""Scores a layer's experts once its route is known, so that missed experts can be kept at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_learned_contexts import LearnedContexts, num_rows
from reference_learned_map import LearnedMap, MapInputs

from sharpi.ops.slot_rules import real

Route = dict[int, list[int]]  # a token's experts by layer, best first


class Source(NamedTuple):
    """A layer whose route is an input to the scores of another layer.

    If `is_absolute`, `layer` is its index, otherwise its distance from the scored layer.
    """

    is_absolute: bool
    layer: int
    is_of_next_token: bool

    def route_of(self, layer: int, token: Route, next_token: Route) -> list[int]:
        """Returns the experts of this source that are inputs to the scores of `layer`."""
        routes = next_token if self.is_of_next_token else token
        return routes.get(self.layer + (0 if self.is_absolute else layer), [])


class LearnedWithin:
    """Scores the experts of a layer as soon as the layer's route is known.

    It is the reference implementation for kernels/cpu/experts/policy/learned_within.h. With
    `contexts`, its maps also have recent uses and combinations of experts as inputs.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        num_layers: int,
        num_experts: int,
        rank_weights: NDArray[np.float32],
        rate: np.float32,
        contexts: LearnedContexts | None,
    ) -> None:
        self._sources, self._num_experts, self._contexts = sources, num_experts, contexts
        self._rank_weights = rank_weights
        self._maps = [
            LearnedMap(
                len(sources),
                num_experts,
                rate,
                of_itself=real("FirstOfItself"),
                follows_text=contexts is not None,
                num_hashed=num_rows(num_experts) if contexts else 0,
            )
            for _ in range(num_layers)
        ]
        self.reset_sequence()

    def reset_sequence(self) -> None:
        self._newest: Route = {}  # the newest route of each layer
        # The inputs of the scores that are still to be learned from.
        self._inputs_before: dict[int, MapInputs] = {}

    def step(self, layer: int, route: list[int]) -> None:
        """Records a layer's route, scores the layer, and corrects its map by the last scores."""
        self._newest[layer] = route
        learned = self._maps[layer]
        learned.count(route)
        inputs = self._inputs(layer)
        learned.score(inputs)
        if layer in self._inputs_before:
            learned.learn(self._inputs_before[layer], route)
        learned.keep()
        self._inputs_before[layer] = inputs

    def _inputs(self, layer: int) -> MapInputs:
        newest, weights = self._newest, self._rank_weights
        contexts = self._contexts.rows(layer, newest, newest) if self._contexts else []
        return inputs_of(self._sources, layer, newest, {}, weights, self._num_experts, contexts)

    def scores(self, layer: int) -> NDArray[np.float32]:
        return self._maps[layer].scores


def inputs_of(
    sources: Sequence[Source],
    layer: int,
    token: Route,
    next_token: Route,
    rank_weights: NDArray[np.float32],
    num_experts: int,
    combinations: Sequence[int],
) -> MapInputs:
    """Returns the map rows for the experts of all `sources` of a layer, weighted by their ranks.

    `combinations` has the rows for combinations of experts.
    """
    ranks = len(rank_weights)
    routes = [source.route_of(layer, token, next_token)[:ranks] for source in sources]
    lengths = np.array([len(route) for route in routes], np.intp)
    first_rows = np.repeat(np.arange(len(sources)) * num_experts, lengths)
    experts = np.array([expert for route in routes for expert in route], np.intp)
    is_known = np.arange(ranks) < lengths[:, np.newaxis]
    weights = np.broadcast_to(rank_weights, is_known.shape)[is_known]
    rows = first_rows + experts
    return MapInputs(rows, weights[:, np.newaxis], np.array(combinations, np.intp))
