"""What a person should know of a plan beside its figures."""

from collections.abc import Iterable, Iterator, Sequence

from sharpi.hardware import HardwareInfo
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.host import HostPlan
from sharpi.tiers.plan import LayerPlan, Tier
from sharpi.tiers.request import TierRequest
from sharpi.units import format_bytes


def plan_notes(
    model: ModelFacts,
    hardware: HardwareInfo,
    request: TierRequest,
    host: HostPlan,
    layers: Sequence[LayerPlan],
) -> Iterator[str]:
    """One line each, the most urgent first."""
    if host.ledger.left < 0:
        missing = format_bytes(-host.ledger.left)
        yield f"does not fit: {missing} of RAM are missing; raise --ram, or lower -c or -b"
    if request.ram is not None and request.ram > hardware.free_ram:
        yield f"only {format_bytes(hardware.free_ram)} of RAM are free now"
    if host.home is Tier.DISK:
        yield from _groups(model.num_experts_per_token, layers)
    if request.moe_slots is not None:
        yield from _fewer_than_asked(request.moe_slots, layers)


def _groups(num_used: int, layers: Iterable[LayerPlan]) -> Iterator[str]:
    """Of experts that a card has in its slots, none is asked for in RAM."""
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
        yield f"{asked} slots a layer were asked for, {min(found)} to {max(found)} fit"
