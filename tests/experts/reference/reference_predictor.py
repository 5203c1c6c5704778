"""Predicts which experts a layer uses next, from earlier routes.

This is the reference implementation; the native code has to give equal results.
Predictions are hints and never change the output. The predictor `last-token` repeats the layer's
previous route. `last-layer` counts which experts are used after those of the previous layer. `both`
also counts which experts are used after those of the layer's own previous route. `frequency`
predicts the experts that the layer uses most.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.native.feed import PREDICTORS
from sharpi.ops.slot_rules import real

_MOST_SEEN = np.float32(real("MostSeen"))
# The weight of the previous token's route, relative to the route of the layer below.
_TOKEN_WEIGHT = np.float32(real("TokenWeight"))


class FollowCounts:
    """Counts how often each expert was used after each other expert; recent uses count most."""

    def __init__(self, num_experts: int) -> None:
        self._seen = np.zeros(num_experts, np.float32)
        self._counts = np.zeros((num_experts, num_experts), np.float32)

    def observe(self, before: Sequence[int], experts: Sequence[int]) -> None:
        """Counts that the distinct `experts` were used after the experts `before`."""
        for expert in before:
            self._counts[expert, list(experts)] += np.float32(1)
            self._seen[expert] += np.float32(1)
            if self._seen[expert] >= _MOST_SEEN:
                self._seen[expert] *= np.float32(0.5)
                self._counts[expert] *= np.float32(0.5)

    def score(self, before: Sequence[int], weight: np.float32, scores: NDArray[np.float32]) -> None:
        """Adds to `scores` (experts,) the share of uses of each expert after the experts `before`.

        The shares are multiplied by `weight`. Those after the first experts of `before`, which have
        the best rank, count most.
        """
        for rank, expert in enumerate(before, start=1):
            if self._seen[expert]:
                scale = weight / np.float32(rank) / self._seen[expert]
                scores += scale * self._counts[expert]


class UseCounts:
    """Counts how often each expert of a layer was used; recent uses count most."""

    def __init__(self, num_experts: int) -> None:
        self._seen = 0.0  # tokens counted so far, with decay
        self.counts = np.zeros(num_experts, np.float32)

    def observe(self, experts: Sequence[int]) -> None:
        """Counts a token's distinct experts."""
        self.counts[list(experts)] += np.float32(1)
        self._seen += 1
        if self._seen >= _MOST_SEEN:
            self._seen *= 0.5
            self.counts *= np.float32(0.5)


class Predictor:
    """The predictors in Python, the reference implementation for policy/predictor.h in C++."""

    def __init__(self, name: str, num_layers: int, num_experts: int) -> None:
        self._num_experts = num_experts
        self._routes: list[list[int]] = [[] for _ in range(num_layers)]  # each layer's latest route
        by_layer, by_token = (name in PREDICTORS[1:3]), (name == PREDICTORS[2])
        self._after_layer = [FollowCounts(num_experts) for _ in range(num_layers * by_layer)]
        self._after_token = [FollowCounts(num_experts) for _ in range(num_layers * by_token)]
        by_use = name == PREDICTORS[3]
        self._uses = [UseCounts(num_experts) for _ in range(num_layers * by_use)]

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """Records the experts that the current token uses in a layer, best first."""
        if self._after_layer:
            self._after_layer[layer].observe(self._routes[layer - 1], experts)
        if self._after_token:
            self._after_token[layer].observe(self._routes[layer], experts)
        if self._uses:
            self._uses[layer].observe(experts)
        self._routes[layer] = list(experts)

    def predict(self, layer: int, budget: int) -> list[int]:
        """Predicts at most `budget` distinct experts for a layer's next use, likeliest first."""
        if not self._after_layer and not self._uses:
            return self._routes[layer][:budget]
        scores = np.zeros(self._num_experts, np.float32)
        if self._uses:
            scores += self._uses[layer].counts
        if self._after_layer:
            # The first layer is predicted from the last layer's route of the previous token.
            self._after_layer[layer].score(self._routes[layer - 1], np.float32(1), scores)
        if self._after_token:
            self._after_token[layer].score(self._routes[layer], _TOKEN_WEIGHT, scores)
        order = np.argsort(-scores, kind="stable")[:budget]
        return [int(expert) for expert in order if scores[expert] > 0]

    def reset_sequence(self) -> None:
        """Prepares for a new, unrelated text: forgets the routes, but keeps the counts."""
        self._routes = [[] for _ in self._routes]
