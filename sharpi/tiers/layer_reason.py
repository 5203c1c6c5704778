"""Why a layer's experts are where they are, in a few words."""

from sharpi.tiers.facts import LayerFacts
from sharpi.tiers.plan import SlotStatus, Tier


def layer_reason(
    layer: LayerFacts, home: Tier | None, within_reach: int, status: SlotStatus, num_used: int
) -> str:
    """For one layer; `within_reach` experts are in its fastest tier."""
    if home is None:
        return "dense: no routed experts"
    if status is SlotStatus.UNKNOWN_EXPERT_SIZE:
        return "the tensors do not show the size of an expert, so none gets a slot"
    if within_reach == layer.num_experts:
        return (
            f"all {layer.num_experts} experts fit {home.name if home is not Tier.DISK else 'RAM'}"
        )
    if status is SlotStatus.BUDGET_EXHAUSTED:
        return "nothing is left for slots: every expert is read where it lives"
    if within_reach < num_used:
        return f"fewer slots than a token's {num_used} experts: works in groups"
    return (
        f"{within_reach} of {layer.num_experts} experts have a slot, the others are on {home.value}"
    )
