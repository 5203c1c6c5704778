"""What goes to the card: trunk and KV cache of whole layers first, then slots with what is left."""

from dataclasses import dataclass

from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.ledger import Ledger
from sharpi.tiers.plan import Purpose, Tier
from sharpi.tiers.prompt_stash import NO_STASH, StashPlan, prompt_stash, stash_room
from sharpi.tiers.request import TierRequest
from sharpi.tiers.slot_sizing import grant_slots
from sharpi.tiers.staging import NO_STAGING, CardStaging, card_staging, card_staging_bytes

RESERVE_BYTES = 512 << 20  # driver context, matrix library, graph pools, allocator granularity


@dataclass(frozen=True, slots=True)
class CardPlan:
    """`layers`: indices of those on the card; `slots`: experts of each that have room there.

    `staging`: room for others, where not all have, and `stash` for prompts that these pass by.
    """

    layers: frozenset[int]
    slots: dict[int, int]
    has_output: bool
    ledger: Ledger
    notes: tuple[str, ...] = ()
    staging: CardStaging = NO_STAGING
    stash: StashPlan = NO_STASH

    def takes_experts(self, index: int) -> bool:
        """Whether the layer's experts may have slots on the card."""
        return index in self.slots

    def holds_all_experts(self, index: int, layer: LayerFacts) -> bool:
        """Whether a layer's experts need no other home in memory."""
        return layer.num_experts > 0 and self.slots.get(index) == layer.num_experts


def plan_card(model: ModelFacts, request: TierRequest, kv: list[int], scratch: int) -> CardPlan:
    """The card's part; `kv`: bytes of each layer's KV cache, `scratch`: of the buffers.

    The last layers go first, behind the output matrix. Experts get slots only where no layer was
    left behind for want of memory: a layer on the card is worth more than its bytes in slots. Where
    a number of layers was asked for, each goes there with all its experts.
    """
    ledger = Ledger(Tier.VRAM, request.vram or 0)
    scratch = scratch if request.card_scratch is None else request.card_scratch
    kv = kv if request.card_kv is None else list(request.card_kv)
    wanted = _wanted_layers(model, request)
    room = ledger.left - RESERVE_BYTES - scratch
    beside = kv
    if _goes_whole(request):
        beside = [kv[i] + _experts_bytes(model, request, i) for i in range(len(model.layers))]
    fitting = _fitting_layers(model, beside, wanted, room)
    if fitting is None:
        return CardPlan(frozenset(), {}, False, ledger, _left_out_notes(wanted, 0))
    ledger.take(Purpose.RESERVE, RESERVE_BYTES, "driver, libraries and graphs of the card")
    ledger.take(Purpose.SCRATCH, scratch, f"buffers of {request.batch_size} tokens of a pass")
    trunk = model.output_bytes + sum(model.layers[i].trunk_bytes for i in fitting)
    ledger.take(Purpose.TRUNK, trunk, f"read for every token: {len(fitting)} layers and the output")
    kv_bytes = sum(kv[i] for i in fitting)
    ledger.take(Purpose.KV, kv_bytes, f"{request.context_size} positions beside their layers")
    has_slots = len(fitting) == wanted or _goes_whole(request)
    slots, staging, stash = _take_slots(model, request, fitting if has_slots else [], ledger)
    notes = _left_out_notes(wanted, len(fitting))
    return CardPlan(frozenset(fitting), slots, True, ledger, notes, staging, stash)


def _wanted_layers(model: ModelFacts, request: TierRequest) -> int:
    if not request.vram:
        return 0
    most = len(model.layers)
    return most if request.gpu_layers is None else min(most, request.gpu_layers)


def _fitting_layers(model: ModelFacts, kv: list[int], wanted: int, budget: int) -> list[int] | None:
    """Indices of the last layers that fit, in order; None when not even one does."""
    budget -= model.output_bytes
    fitting: list[int] = []
    for index in reversed(range(len(model.layers) - wanted, len(model.layers))):
        budget -= model.layers[index].trunk_bytes + kv[index]
        if budget < 0:
            break
        fitting.insert(0, index)
    while fitting and not _has_its_keys(model, fitting):
        fitting.pop(0)
    return fitting or None


def _has_its_keys(model: ModelFacts, layers: list[int]) -> bool:
    """Whether none of these last layers reads keys of one before them."""
    sources = (model.layers[i].kv_layer for i in layers)
    return all(source is None or source >= layers[0] for source in sources)


def _goes_whole(request: TierRequest) -> bool:
    """Whether layers were counted out, each of which then takes its experts along."""
    return request.gpu_layers is not None and request.moe_slots is None


def _experts_bytes(model: ModelFacts, request: TierRequest, index: int) -> int:
    """Room for all experts of a layer, where they may be on the card."""
    layer = model.layers[index]
    is_kept_off = request.cpu_moe or index < request.num_cpu_moe
    return 0 if is_kept_off else layer.num_experts * layer.slot_bytes


def _take_slots(
    model: ModelFacts, request: TierRequest, layers: list[int], ledger: Ledger
) -> tuple[dict[int, int], CardStaging, StashPlan]:
    """Slots by layer; where they are fewer than experts, there are staging and a stash, too."""
    first = len(model.layers) if request.cpu_moe else request.num_cpu_moe
    moe = {i: model.layers[i] for i in layers if i >= first and model.layers[i].num_experts}
    slots = grant_slots(moe, ledger.left, request.moe_slots)
    staging, stash = NO_STAGING, NO_STASH
    if any(count < moe[i].num_experts for i, count in slots.items()):
        staging = card_staging(model, moe.values(), ledger.left)
        room = ledger.left - card_staging_bytes(staging, moe.values())
        if staging.num_streamed:
            stash = prompt_stash(model, request, ledger.left)
            room -= stash_room(model, request, ledger.left)
        slots = grant_slots(moe, room, request.moe_slots)
    num_bytes = sum(moe[i].slot_bytes * count for i, count in slots.items())
    if not num_bytes:
        return slots, NO_STAGING, NO_STASH
    if staging.num_experts:
        size = card_staging_bytes(staging, moe.values())
        ledger.take(Purpose.STAGING, size, staging.reason)
    ledger.take(Purpose.STASH, stash.card_bytes, stash.reason)
    ledger.take(Purpose.SLOTS, num_bytes, "what trunk and KV cache leave, shared by the layers")
    return slots, staging, stash


def _left_out_notes(wanted: int, on_card: int) -> tuple[str, ...]:
    if on_card == wanted:
        return ()
    return (f"{wanted - on_card} of {wanted} layers stay on the CPU: they do not fit VRAM",)
