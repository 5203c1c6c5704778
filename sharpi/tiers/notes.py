"""Writes what a plan tells the user: notes, slots and reasons for tiers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sharpi.hardware.info import HardwareInfo
from sharpi.settings import RunConfig
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.host import HostPlan
from sharpi.tiers.plan import LayerPlan, Purpose, SlotStatus, Tier, TierPlan
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
        yield missing_note(-host.tier_budget.left, request.config)
    asked = request.config.ram
    if asked is not None and asked > hardware.free_ram and not hardware.limits_ram:
        yield f"only {format_bytes(hardware.free_ram)} of RAM is free now"
    if host.tier is Tier.DISK:
        yield from _groups(model.num_experts_per_token, layers)
    if host.uses_small_maps:
        yield (
            "RAM is short for what learned-prefetch learns: learned-keep decides about slots,"
            " unless --moe-policy names another"
        )
    if request.config.moe_slots is not None:
        with_slots = [each for each in layers if _may_have_slots(each, request)]
        yield from _fewer_than_asked(request.config.moe_slots, with_slots)


def missing_note(num_bytes: int, config: RunConfig) -> str:
    """Returns a sentence on bytes that are missing in RAM."""
    missing = format_bytes(num_bytes)
    if is_fixed(config):
        return f"does not fit: {missing} of RAM are missing; raise --ram, or lower -c or -b"
    return (
        f"the model needs {missing} more RAM than is free; parts of it are read from disk for every"
        " token"
    )


def is_fixed(config: RunConfig) -> bool:
    """Returns True if a plan that exceeds its budget is an error, because one was asked for."""
    return config.ram is not None or config.moe_slots is not None


def _groups(num_used: int, layers: Iterable[LayerPlan]) -> Iterator[str]:
    """Yields a note if a layer has fewer slots in RAM than a token may need at once."""
    slots = [each.ram_slots for each in layers if each.lacks_ram_slots(num_used)]
    if slots:
        yield (
            f"RAM has room for {min(slots)} of the {num_used} experts that a token uses in a layer:"
            " they take turns, which is slow"
        )


def _may_have_slots(layer: LayerPlan, request: PlanRequest) -> bool:
    """Returns False if the layer's experts are all in RAM, where the CPU uses them."""
    is_on_gpu = layer.dense_weights is Tier.VRAM and not request.keeps_off_gpu(layer.index)
    return is_on_gpu or layer.experts is Tier.DISK


def _fewer_than_asked(asked: int, layers: Sequence[LayerPlan]) -> Iterator[str]:
    slots = {each.index: max(each.vram_slots, each.ram_slots) for each in layers}
    cut = [each for each in layers if slots[each.index] < min(asked, each.num_experts)]
    if cut:
        found = [slots[each.index] for each in layers if each.num_experts]
        yield f"{asked} slots per layer were requested, {min(found)} to {max(found)} fit"


def layer_reason(layer: LayerPlan, num_used: int, *, is_kept_off: bool) -> str:
    """Returns a text that explains where a layer's experts are, of which a token uses `num_used`.

    `is_kept_off`: the layer is on the GPU, but the user requested that its experts are not.
    """
    tier, every, on_gpu, in_ram = (
        layer.experts,
        layer.num_experts,
        layer.vram_slots,
        layer.ram_slots,
    )
    if tier is None:
        return "dense: no routed experts"
    if layer.expert_bytes is None:
        return "the tensors do not show the size of an expert, so none gets a slot"
    if tier is not Tier.DISK:
        if is_kept_off:
            return f"kept off the GPU: the CPU computes all {every} experts"
        if on_gpu and tier is Tier.RAM:
            return f"{on_gpu} of {every} in slots on the GPU, the others in RAM"
        return f"all {every} experts fit in {tier.name}"
    if in_ram == every - on_gpu:
        others = f"{on_gpu} on the GPU, the other {in_ram} have a slot in RAM"
        return f"{others if on_gpu else f'all {in_ram} experts have a slot'}, read from disk once"
    if not in_ram:
        return "nothing is left for slots: every expert is read from disk when used"
    if layer.lacks_ram_slots(num_used):
        return f"fewer slots than a token's {num_used} experts, which take turns"
    if on_gpu:
        return f"{on_gpu} on the GPU, {in_ram} in slots in RAM, the others on disk"
    return f"{in_ram} of {every} in slots, the others on disk"


def slot_notes(plan: TierPlan, *, is_limited: bool = False) -> Iterator[str]:
    """Yields a line for each tier with slots; the first says how many are recommended.

    `is_limited`: the user requested a number of slots.
    """
    on_gpu = {each: each.vram_slots for each in plan.layers if _may_have_slots_on_gpu(each)}
    in_ram = {each: each.ram_slots for each in plan.layers if each.experts is Tier.DISK}
    elsewhere = "in RAM" if plan.is_mapped else "in RAM or on disk"
    status = f"; {_status(plan, is_limited=is_limited)}"
    for tier, slots, others in (
        (Tier.VRAM, on_gpu, elsewhere),
        (Tier.RAM, in_ram, "read from disk"),
    ):
        if slots:
            size = format_bytes(plan.bytes_in(tier, Purpose.SLOTS))
            yield f"{_line(tier, slots, others)} ({size}{status})"
            status = ""


def _may_have_slots_on_gpu(layer: LayerPlan) -> bool:
    """Returns True if the layer is on the GPU, and its experts are not kept off by request."""
    has_room = layer.vram_slots > 0 or layer.status is not SlotStatus.OK
    return layer.num_experts > 0 and layer.dense_weights is Tier.VRAM and has_room


def _line(tier: Tier, slots: Mapping[LayerPlan, int], others: str) -> str:
    """Returns how many experts of each layer have slots in a tier; `others` are elsewhere."""
    few, many, most = min(slots.values()), max(slots.values()), max(e.num_experts for e in slots)
    if few == most:
        return f"all {most} experts of each layer have a slot in {tier.name}"
    number = str(few) if few == many else f"{few} to {many}"
    have = "has a slot" if number == "1" else "have a slot"
    return f"{number} of a layer's {most} experts {have} in {tier.name}, the others are {others}"


def _status(plan: TierPlan, *, is_limited: bool) -> str:
    """Returns the text about the plan's status, with the recommended number of slots."""
    recommended = max(layer.recommended_slots for layer in plan.layers)
    if plan.status is SlotStatus.OK:
        return f"{recommended} or more are recommended"
    what = "--vram" if any(map(_may_have_slots_on_gpu, plan.layers)) else "--ram"
    advice = "raise --moe-slots" if is_limited else f"raise {what} or lower -c"
    return f"{recommended} are recommended: {advice}"
