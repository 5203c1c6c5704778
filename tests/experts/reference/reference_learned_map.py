"""A linear map for one layer from recently used experts to the score of each expert.

A score estimates the worth of a slot to the expert. The order of float32 operations is that of the
native code, so that both round alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_recent_uses import RecentUses

from sharpi.ops.slot_rules import real

_DISCOUNT, _BIAS_RATE = np.float32(real("Discount")), np.float32(real("BiasRate"))
_HASHED_RATE, _LASTING = np.float32(real("HashedRate")), np.float32(real("LastingRate"))
_FIRST, _NEW_UNTIL = np.float32(real("FirstRate")), np.float32(real("NewUntil"))
_KEPT = np.float32(real("KeptOfFading"))


class MapInputs(NamedTuple):
    """The rows of a map that are its inputs: `experts` before `combinations`.

    Each expert of another layer has a row of its own and a weight. A combination has weight 1, and
    may share its row with another one.
    """

    experts: NDArray[np.intp]  # (experts,)
    weights: NDArray[np.float32]  # (experts, 1)
    combinations: NDArray[np.intp]  # (combinations,)


class LearnedMap:
    """One layer's map; `scores` (experts,) is float32.

    It is the reference implementation for kernels/cpu/experts/policy/learned_map.h. With
    `follows_text`, recent uses are inputs, too, and each row for an expert has a second copy that
    fades and so adapts to recent text. `of_itself` is what an expert of the layer is worth at first
    for its own next use.
    """

    def __init__(
        self,
        num_sources: int,
        num_experts: int,
        rate: np.float32,
        *,
        of_itself: float,
        follows_text: bool,
        num_hashed: int,
    ) -> None:
        self.scores: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self._weights = np.zeros((num_sources * num_experts + num_hashed, num_experts), np.float32)
        np.fill_diagonal(self._weights[:num_experts], of_itself)
        self._bias = np.full(num_experts, np.float32(real("FirstBias")))
        self._previous = np.zeros(num_experts, np.float32)
        self._rate = rate
        self._first_hashed = num_sources * num_experts
        fading = self._first_hashed if follows_text else 0
        self._fading = np.zeros((fading, num_experts), np.float32)
        self._recent = RecentUses(num_experts) if follows_text else None
        self._times_learned = np.zeros(num_hashed, np.float32)

    def count(self, used: Sequence[int]) -> None:
        """Counts the experts that a token used; call it before `score` for that token."""
        if self._recent is not None:
            self._recent.count(used)

    def score(self, inputs: MapInputs) -> None:
        """Sets `scores` to the scores that follow from `inputs`."""
        scores = self._bias.copy()
        if self._recent is not None:
            self._recent.add_to(scores)
        self.scores = _added_in_order(scores, self._terms(inputs))

    def _terms(self, inputs: MapInputs) -> NDArray[np.float32]:
        """Returns what each input adds to the scores: (terms, experts), in the native code's order.

        A row for an expert adds its weights, then those of its fading copy.
        """
        rows, weights, combinations = inputs
        terms = weights * self._weights[rows]
        if not len(self._fading):
            return terms
        both = np.empty((len(rows), 2, terms.shape[1]), np.float32)
        both[:, 0], both[:, 1] = terms, weights * self._fading[rows]
        return np.concatenate((both.reshape(-1, terms.shape[1]), self._weights[combinations]))

    def learn(self, inputs: MapInputs, used: Sequence[int]) -> None:
        """Adapts the map so that its previous scores, from `inputs`, would be closer to a target.

        The target is 1 for the experts `used` since, and the discounted current score for others.
        """
        error = _DISCOUNT * np.clip(self.scores, np.float32(0), np.float32(1))
        error[list(used)] = 1
        self._follow(inputs, error)

    def learn_worth(
        self,
        inputs: MapInputs,
        used: Sequence[int],
        threshold: np.float32,
        most: np.float32,
    ) -> None:
        """Adapts the map so that its previous scores, from `inputs`, would be closer to the worth.

        The worth of a slot is the current score less `threshold`, between 0 and `most`, plus 1 for
        the experts `used` since.
        """
        worth = np.minimum(most, np.maximum(np.float32(0), self.scores - threshold))
        worth[list(used)] += np.float32(1)
        self._follow(inputs, worth)

    def _follow(self, inputs: MapInputs, aim: NDArray[np.float32]) -> None:
        error = aim - self._previous
        self._bias += _BIAS_RATE * error
        if self._recent is not None:
            self._recent.follow(error)
        rows, steps = inputs.experts, self._rate * inputs.weights * error
        self._weights[rows] += steps
        if len(self._fading):
            self._fading[rows] = _KEPT * self._fading[rows] + steps
        places = (inputs.combinations - self._first_hashed).tolist()
        rates = np.array([self._hashed_rate(place) for place in places], np.float32)
        # Two combinations may share a row, to which both are then added.
        np.add.at(self._weights, inputs.combinations, rates[:, np.newaxis] * error)

    def _hashed_rate(self, place: int) -> np.float32:
        more = _FIRST / (np.float32(1) + self._times_learned[place] / _NEW_UNTIL)
        self._times_learned[place] += np.float32(1)
        return np.float32(_HASHED_RATE * self._rate * (_LASTING + more))

    def keep(self) -> None:
        """Stores the current scores as the previous ones for the next call of `learn`."""
        self._previous = self.scores.copy()


def _added_in_order(first: NDArray[np.float32], terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns `first` (experts,) plus the terms (terms, experts), rounded as a loop would."""
    sums = np.cumsum(np.concatenate((first[np.newaxis], terms)), axis=0)
    last: NDArray[np.float32] = sums[-1]
    return last
