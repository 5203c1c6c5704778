"""How many slots each layer gets of a budget, and how that compares with what it wants."""

from collections.abc import Iterable, Mapping

from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import SlotStatus

TOKENS_WORTH_OF_SLOTS = 2
_ORDER = list(SlotStatus)


def recommended_slots(layer: LayerFacts, model: ModelFacts) -> int:
    """Slots for the experts of two tokens: fewer, and a token evicts what the last one used."""
    return min(TOKENS_WORTH_OF_SLOTS * model.num_experts_per_token, layer.num_experts)


def grant_slots(
    layers: Mapping[int, LayerFacts], budget: int, limit: int | None = None
) -> dict[int, int]:
    """Slots by layer index: one for each layer in turn, until the next one does not fit.

    The order of grants never depends on the budget, so more of it never takes a slot away. `limit`:
    slots of a layer at most, beside the number of its experts.
    """
    granted = dict.fromkeys(layers, 0)
    for index in _turns(layers, limit):
        budget -= layers[index].slot_bytes
        if budget < 0:
            break
        granted[index] += 1
    return granted


def _turns(layers: Mapping[int, LayerFacts], limit: int | None) -> Iterable[int]:
    most = {i: _most_slots(layer, limit) for i, layer in layers.items()}
    for number in range(max(most.values(), default=0)):
        yield from (index for index in layers if number < most[index])


def _most_slots(layer: LayerFacts, limit: int | None) -> int:
    if layer.expert_bytes is None:
        return 0
    return layer.num_experts if limit is None else min(limit, layer.num_experts)


def slot_status(layer: LayerFacts, num_resident: int, recommended: int) -> SlotStatus:
    """The status of a layer that keeps so many experts within reach."""
    if not layer.num_experts:
        return SlotStatus.EMPTY
    if layer.expert_bytes is None:
        return SlotStatus.UNKNOWN_EXPERT_SIZE
    if not num_resident:
        return SlotStatus.BUDGET_EXHAUSTED
    return SlotStatus.OK if num_resident >= recommended else SlotStatus.BELOW_RECOMMENDED


def worst(statuses: Iterable[SlotStatus]) -> SlotStatus:
    """The one that most wants attention; "empty" for a model without routed experts."""
    return max(statuses, key=_ORDER.index, default=SlotStatus.EMPTY)
