"""Grants slots within a budget: one to each layer in turn, until the next one does not fit."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class SlotWant(NamedTuple):
    """The size of a layer's slot, and the most slots that it can use."""

    slot_bytes: int
    most: int


def grant(wants: Mapping[int, SlotWant], budget: int) -> dict[int, int]:
    """Returns the slots by layer index.

    The order of grants does not depend on the budget, so a larger budget never takes a slot away.
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
