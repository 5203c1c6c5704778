"""Scores a layer's experts once its route is known, so that missed experts can be kept at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.reference.learned_contexts import LearnedContexts, num_rows
from sharpi.experts.reference.learned_map import LearnedMap, MapInput

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
                follows_text=contexts is not None,
                num_hashed=num_rows(num_experts) if contexts else 0,
            )
            for _ in range(num_layers)
        ]
        self.reset_sequence()

    def reset_sequence(self) -> None:
        self._newest: Route = {}  # the newest route of each layer
        # The inputs of the scores that are still to be learned from.
        self._inputs_before: dict[int, list[MapInput]] = {}

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

    def _inputs(self, layer: int) -> list[MapInput]:
        newest = self._newest
        sources = inputs_of(self._sources, layer, newest, {}, self._rank_weights, self._num_experts)
        return sources + (self._contexts.rows(layer, newest, newest) if self._contexts else [])

    def scores(self, layer: int) -> NDArray[np.float32]:
        return self._maps[layer].scores


def inputs_of(
    sources: Sequence[Source],
    layer: int,
    token: Route,
    next_token: Route,
    rank_weights: NDArray[np.float32],
    num_experts: int,
) -> list[MapInput]:
    """Returns the map rows for the experts of all `sources` of a layer, weighted by their ranks."""
    return [
        MapInput(index * num_experts + expert, weight)
        for index, source in enumerate(sources)
        for expert, weight in zip(
            source.route_of(layer, token, next_token), rank_weights, strict=False
        )
    ]
