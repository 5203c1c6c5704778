"""Why a layer's experts are where they are, in a few words."""

from sharpi.tiers.facts import LayerFacts
from sharpi.tiers.plan import Tier


def layer_reason(
    layer: LayerFacts, home: Tier | None, *, vram_slots: int, ram_slots: int, num_used: int
) -> str:
    """For one layer whose experts' home is that tier; `num_used`: experts of a token."""
    if home is None:
        return "dense: no routed experts"
    if layer.expert_bytes is None:
        return "the tensors do not show the size of an expert, so none gets a slot"
    if home is not Tier.DISK:
        return _in_memory(layer, home, vram_slots)
    if ram_slots == layer.num_experts:
        return f"all {ram_slots} experts have a slot, read from disk once"
    if not ram_slots:
        return "nothing is left for slots: every expert is read from disk when used"
    if ram_slots < num_used:
        return f"fewer slots than a token's {num_used} experts: works in groups"
    return f"{max(vram_slots, ram_slots)} of {layer.num_experts} in slots, the others on disk"


def _in_memory(layer: LayerFacts, home: Tier, vram_slots: int) -> str:
    if vram_slots and home is Tier.RAM:
        return f"{vram_slots} of {layer.num_experts} in slots on the card, the others in RAM"
    return f"all {layer.num_experts} experts fit {home.name}"
