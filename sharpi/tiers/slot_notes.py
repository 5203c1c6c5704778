"""Writes notes for the user on a plan's expert slots: their number, and whether it suffices."""

from collections.abc import Iterator, Sequence

from sharpi.tiers.plan import LayerPlan, Purpose, SlotStatus, Tier, TierPlan
from sharpi.units import format_bytes


def slot_notes(plan: TierPlan, *, is_limited: bool = False) -> Iterator[str]:
    """Yields a line for each tier with slots; the line of the fastest tier has the plan's status.

    There are no lines without slots, that is, if all experts are in RAM or for a dense model.
    `is_limited`: the user requested a number of slots.
    """
    on_gpu = [layer for layer in plan.layers if _may_have_slots_on_gpu(layer)]
    in_ram = [layer for layer in plan.layers if layer.experts is Tier.DISK]
    status = f"; {_status(plan, is_limited=is_limited)}"
    if on_gpu:
        elsewhere = "in RAM" if plan.is_mapped else "in RAM or on disk"
        counts = [layer.vram_slots for layer in on_gpu]
        yield _line(plan, Tier.VRAM, on_gpu, counts, f"the others are {elsewhere}") + status + ")"
        status = ""
    if in_ram:
        counts = [layer.ram_slots for layer in in_ram]
        yield _line(plan, Tier.RAM, in_ram, counts, "the others are read from disk") + status + ")"


def _may_have_slots_on_gpu(layer: LayerPlan) -> bool:
    """Returns True if the layer is on the GPU, and its experts are not kept off by request."""
    has_room = layer.vram_slots > 0 or layer.status is not SlotStatus.OK
    return layer.num_experts > 0 and layer.dense_weights is Tier.VRAM and has_room


def _line(
    plan: TierPlan, tier: Tier, layers: Sequence[LayerPlan], slots: Sequence[int], others: str
) -> str:
    """Returns the line about one tier, without the closing bracket, which the caller adds.

    `slots` has the number of slots of each layer; `others` describes experts without a slot.
    """
    few, many, most = min(slots), max(slots), max(layer.num_experts for layer in layers)
    number = str(few) if few == many else f"{few} to {many}"
    size = format_bytes(plan.bytes_in(tier, Purpose.SLOTS))
    if few == most:
        return f"all {most} experts of each layer have a slot in {tier.name} ({size}"
    have = "has" if number == "1" else "have"
    return f"{number} of a layer's {most} experts {have} a slot in {tier.name}, {others} ({size}"


def _status(plan: TierPlan, *, is_limited: bool) -> str:
    """Returns the text about the plan's status, with the recommended number of slots."""
    recommended = max(layer.recommended_slots for layer in plan.layers)
    if plan.status is SlotStatus.OK:
        return f"ok: {recommended} or more are recommended"
    what = "--vram" if any(map(_may_have_slots_on_gpu, plan.layers)) else "--ram"
    advice = "raise --moe-slots" if is_limited else f"raise {what} or lower -c"
    return f"{plan.status.value}: {plan.ratio:.2f} of the {recommended} recommended, {advice}"
