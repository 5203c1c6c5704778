"""Divides a budget into expert slots: one for each layer in turn, until the next does not fit."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class SlotDemand(NamedTuple):
    """The bytes of one slot of a layer, and the most slots that the layer can use."""

    slot_bytes: int
    most: int


def grant(demands: Mapping[int, SlotDemand], budget: int) -> dict[int, int]:
    """Returns the number of slots by layer index; `budget` is in bytes.

    The order in which slots are added does not depend on the budget. So no layer has fewer slots
    with a larger budget.
    """
    granted = dict.fromkeys(demands, 0)
    for index in _slot_order(demands):
        budget -= demands[index].slot_bytes
        if budget < 0:
            break
        granted[index] += 1
    return granted


def _slot_order(demands: Mapping[int, SlotDemand]) -> Iterable[int]:
    for number in range(max((demand.most for demand in demands.values()), default=0)):
        yield from (index for index, demand in demands.items() if number < demand.most)
