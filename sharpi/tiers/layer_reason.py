"""Why a layer's experts are where they are, in a few words."""

from sharpi.tiers.facts import LayerFacts
from sharpi.tiers.plan import Tier


def layer_reason(
    layer: LayerFacts,
    home: Tier | None,
    *,
    vram_slots: int,
    ram_slots: int,
    num_used: int,
    is_kept_off: bool = False,
) -> str:
    """For one layer whose experts' home is that tier; `num_used`: experts of a token.

    `is_kept_off`: whether the layer is on the card, but its experts were asked to be elsewhere.
    """
    if home is None:
        return "dense: no routed experts"
    if layer.expert_bytes is None:
        return "the tensors do not show the size of an expert, so none gets a slot"
    if home is not Tier.DISK:
        return _in_memory(layer, home, vram_slots, is_kept_off=is_kept_off)
    rest = layer.num_experts - vram_slots
    if ram_slots == rest:
        return f"{_slots(vram_slots, ram_slots)}, read from disk once"
    if not ram_slots:
        return "nothing is left for slots: every expert is read from disk when used"
    if ram_slots < min(num_used, rest):
        return f"fewer slots than a token's {num_used} experts: works in groups"
    if vram_slots:
        return f"{vram_slots} on the card, {ram_slots} in slots in RAM, the others on disk"
    return f"{ram_slots} of {layer.num_experts} in slots, the others on disk"


def _in_memory(layer: LayerFacts, home: Tier, vram_slots: int, *, is_kept_off: bool) -> str:
    if is_kept_off:
        return f"kept off the card: the CPU computes all {layer.num_experts} experts"
    if vram_slots and home is Tier.RAM:
        return f"{vram_slots} of {layer.num_experts} in slots on the card, the others in RAM"
    return f"all {layer.num_experts} experts fit {home.name}"


def _slots(vram_slots: int, ram_slots: int) -> str:
    if vram_slots:
        return f"{vram_slots} on the card, the other {ram_slots} have a slot in RAM"
    return f"all {ram_slots} experts have a slot"
