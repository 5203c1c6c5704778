"""Decides how many expert slots each layer has, and compares them with the recommended number."""

from collections.abc import Iterable, Mapping

from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import SlotStatus
from sharpi.tiers.slot_grants import SlotDemand, grant

TOKENS_WORTH_OF_SLOTS = 2
_ORDER = list(SlotStatus)


def recommended_slots(layer: LayerFacts, model: ModelFacts) -> int:
    """Returns the recommended number of slots of a layer: enough for the experts of two tokens.

    With fewer slots, a token evicts the experts of the previous token.
    """
    return min(TOKENS_WORTH_OF_SLOTS * model.num_experts_per_token, layer.num_experts)


def grant_slots(
    layers: Mapping[int, LayerFacts], budget: int, limit: int | None = None
) -> dict[int, int]:
    """Returns the number of slots by layer index, within `budget` bytes; see `grant`.

    `limit`: the most slots of a layer; None means as many as it has experts.
    """
    demands = {
        i: SlotDemand(layer.slot_bytes, most_slots(layer, limit)) for i, layer in layers.items()
    }
    return grant(demands, budget)


def most_slots(layer: LayerFacts, limit: int | None) -> int:
    """Returns the most slots that a layer can use, up to a limit; 0 if their size is unknown."""
    if layer.expert_bytes is None:
        return 0
    return layer.num_experts if limit is None else min(limit, layer.num_experts)


def slot_status(layer: LayerFacts, num_resident: int, recommended: int) -> SlotStatus:
    """Returns the status of a layer that has this number of resident experts."""
    if not layer.num_experts:
        return SlotStatus.EMPTY
    if layer.expert_bytes is None:
        return SlotStatus.UNKNOWN_EXPERT_SIZE
    if not num_resident:
        return SlotStatus.BUDGET_EXHAUSTED
    return SlotStatus.OK if num_resident >= recommended else SlotStatus.BELOW_RECOMMENDED


def worst(statuses: Iterable[SlotStatus]) -> SlotStatus:
    """Returns the worst of the statuses; "empty" if there are none."""
    return max(statuses, key=_ORDER.index, default=SlotStatus.EMPTY)
