"""Combinations of experts as inputs of a layer's map, as rows of a hashed table."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sharpi.ops.slot_rules import whole

_RANKS = whole("Ranks")
_WORD = 0xFFFFFFFF
# Keys without new information if the layer's route is known when the layer is scored (`ahead` 0).
_REPEATS = (3, 4, 6)

Route = Mapping[int, Sequence[int]]  # a token's experts by layer, best first


class LearnedContexts:
    """Hashes combinations of recently used experts to rows of each layer's map.

    It is the reference implementation for kernels/cpu/experts/policy/learned_contexts.h.
    """

    def __init__(self, own_layers: range, num_experts: int, *, first_row: int, ahead: int) -> None:
        self._own_layers, self._first_layer = own_layers, own_layers.start
        self._first_row, self._ahead = first_row, ahead
        self._mask = num_rows(num_experts) - 1

    def rows(self, layer: int, present: Route, following: Route) -> list[int]:
        """Returns the map rows for scoring a layer.

        `present` has the routes of the current token. `following` has those routes of the next
        token that are known when the layer is scored. With `ahead` 0, the route of the layer itself
        is known, and `following` equals `present`.
        """
        first, second = (
            (following if lowest <= layer - self._ahead else present).get(lowest, ())
            for lowest in (
                self._first_layer,
                min(self._first_layer + 1, self._own_layers.stop - 1),
            )
        )
        below, beneath = (
            self._newest(layer - self._ahead - more, present, following) for more in (0, 1)
        )
        keys = (
            sorted(first[:_RANKS]),
            [*below[:2], *beneath[:2]],
            sorted(present.get(layer, ())[:_RANKS]),
            below[:2],
            [*sorted(below[:2]), *below[2:3]],
            [*sorted(first[:_RANKS]), *sorted(second[:2])],
            sorted(below[:_RANKS]),
            [*sorted(first[:2]), *sorted(below[:2])],
        )
        return [
            self._first_row + (_hash(index, tuple(key)) & self._mask)
            for index, key in enumerate(keys)
            if self._ahead or index not in _REPEATS
        ]

    def _newest(self, layer: int, present: Route, following: Route) -> Sequence[int]:
        """Returns a layer's newest known route.

        Below the first layer, that is the current token's route in a layer counted from the last.
        """
        if layer < self._first_layer:
            behind = self._first_layer - 1 - layer
            return present.get(self._own_layers[-1 - behind % len(self._own_layers)], ())
        return following.get(layer, ())


def num_rows(num_experts: int) -> int:
    """Returns the number of rows of a layer's hashed table, a power of two."""
    rows = whole("MostTableRows")
    while rows > 1 and rows * num_experts > whole("MostTableFloats"):
        rows //= 2
    return rows


@lru_cache(1 << 14)  # most combinations come again
def _hash(context: int, experts: tuple[int, ...]) -> int:
    value = (context + 1) * 0x9E3779B1 & _WORD
    for expert in experts:
        value = (value ^ expert) * 2654435761 & _WORD
        value ^= value >> 15
        value = value * 2246822519 & _WORD
        value ^= value >> 13
    return value
