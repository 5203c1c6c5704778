"""Writes the notes on a plan for the user, and the reason for the tier of each layer's experts."""

from collections.abc import Iterable, Iterator, Sequence

from sharpi.hardware.info import HardwareInfo
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.host import HostPlan
from sharpi.tiers.plan import LayerPlan, Tier
from sharpi.tiers.settings import PlanRequest
from sharpi.units import format_bytes


def plan_notes(
    model: ModelFacts,
    hardware: HardwareInfo,
    request: PlanRequest,
    host: HostPlan,
    layers: Sequence[LayerPlan],
) -> Iterator[str]:
    """Yields the notes on a plan, one line each, the most urgent first."""
    if host.tier_budget.left < 0:
        missing = format_bytes(-host.tier_budget.left)
        yield f"does not fit: {missing} of RAM are missing; raise --ram, or lower -c or -b"
    if request.config.ram is not None and request.config.ram > hardware.free_ram:
        yield f"only {format_bytes(hardware.free_ram)} of RAM is free now"
    if host.tier is Tier.DISK:
        yield from _groups(model.num_experts_per_token, layers)
    if host.uses_small_maps:
        yield (
            "RAM is short for what learned-prefetch learns: learned-keep decides about slots,"
            " unless --moe-policy names another"
        )
    if request.config.moe_slots is not None:
        yield from _fewer_than_asked(request.config.moe_slots, layers)


def _groups(num_used: int, layers: Iterable[LayerPlan]) -> Iterator[str]:
    """Yields a note if a layer has fewer slots in RAM than a token may need at once."""
    slots = [each.ram_slots for each in layers if each.lacks_ram_slots(num_used)]
    fewest = min(slots, default=num_used)
    if slots:
        counted = "slot is" if fewest == 1 else "slots are"
        yield f"{fewest} {counted} fewer than a token's {num_used} experts: works in groups"


def _fewer_than_asked(asked: int, layers: Sequence[LayerPlan]) -> Iterator[str]:
    slots = {each.index: max(each.vram_slots, each.ram_slots) for each in layers}
    cut = [each for each in layers if slots[each.index] < min(asked, each.num_experts)]
    if cut:
        found = [slots[each.index] for each in layers if each.num_experts]
        yield f"{asked} slots per layer were requested, {min(found)} to {max(found)} fit"


def layer_reason(
    layer: LayerFacts,
    tier: Tier | None,
    *,
    vram_slots: int,
    ram_slots: int,
    num_used: int,
    is_kept_off: bool = False,
) -> str:
    """Returns a text that explains where a layer's experts are; they are stored in `tier`.

    `num_used`: experts that a token uses. `is_kept_off`: the layer is on the GPU, but the user
    requested that its experts are not.
    """
    if tier is None:
        return "dense: no routed experts"
    if layer.expert_bytes is None:
        return "the tensors do not show the size of an expert, so none gets a slot"
    if tier is not Tier.DISK:
        return _in_memory(layer, tier, vram_slots, is_kept_off=is_kept_off)
    rest = layer.num_experts - vram_slots
    if ram_slots == rest:
        return f"{_slots(vram_slots, ram_slots)}, read from disk once"
    if not ram_slots:
        return "nothing is left for slots: every expert is read from disk when used"
    if ram_slots < min(num_used, rest):
        return f"fewer slots than a token's {num_used} experts: works in groups"
    if vram_slots:
        return f"{vram_slots} on the GPU, {ram_slots} in slots in RAM, the others on disk"
    return f"{ram_slots} of {layer.num_experts} in slots, the others on disk"


def _in_memory(layer: LayerFacts, tier: Tier, vram_slots: int, *, is_kept_off: bool) -> str:
    if is_kept_off:
        return f"kept off the GPU: the CPU computes all {layer.num_experts} experts"
    if vram_slots and tier is Tier.RAM:
        return f"{vram_slots} of {layer.num_experts} in slots on the GPU, the others in RAM"
    return f"all {layer.num_experts} experts fit in {tier.name}"


def _slots(vram_slots: int, ram_slots: int) -> str:
    if vram_slots:
        return f"{vram_slots} on the GPU, the other {ram_slots} have a slot in RAM"
    return f"all {ram_slots} experts have a slot"
