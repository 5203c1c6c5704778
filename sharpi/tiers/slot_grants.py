"""Divides a budget into expert slots: one for each layer in turn, until the next does not fit."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class SlotWant(NamedTuple):
    """The bytes of one slot of a layer, and the most slots that the layer can use."""

    slot_bytes: int
    most: int


def grant(wants: Mapping[int, SlotWant], budget: int) -> dict[int, int]:
    """Returns the number of slots by layer index; `budget` is in bytes.

    The order in which slots are added does not depend on the budget. So no layer has fewer slots
    with a larger budget.
    """
    granted = dict.fromkeys(wants, 0)
    for index in _turns(wants):
        budget -= wants[index].slot_bytes
        if budget < 0:
            break
        granted[index] += 1
    return granted


def _turns(wants: Mapping[int, SlotWant]) -> Iterable[int]:
    for number in range(max((want.most for want in wants.values()), default=0)):
        yield from (index for index, want in wants.items() if number < want.most)
