"""GpuSlots: decides how a GPU without room for all experts uses its slots."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from sharpi.config import ExpertConfig
from sharpi.experts.policy_choice import (
    DEFAULT_PREDICTOR,
    ExpertShape,
    choose_policy,
    choose_predictor,
    is_default,
    pin_note,
)
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.profile import ExpertProfile
from sharpi.model.config import ModelConfig
from sharpi.ops.cuda.expert_slots.slot_memories import SlotSettings
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.gpu_limits import raise_unsupported
from sharpi.ops.cuda.launchers.experts.slot_policy import MAX_EXPERTS, MAX_USED, PolicyRules
from sharpi.ops.cuda.recorded import MissMode
from sharpi.tiers.expert_memory import NO_STASH, StashPlan
from sharpi.tiers.plan import GpuPlace, KvGrowth, TierPlan

GPU_PREDICTORS = (DEFAULT_PREDICTOR, "last-layer", "frequency")


class GpuSlots(Struct, frozen=True):
    """The slots of a GPU without room for all experts, and how they are used."""

    settings: SlotSettings
    policy: PolicySettings
    modes: tuple[MissMode, ...]  # the candidates, of which the fastest is found while running
    expert_bytes: Mapping[int, int]  # bytes of one expert, by layer
    predicts: bool = False  # layers prefetch the next layer's experts, as long as that pays
    stash: StashPlan = NO_STASH  # for prompts
    notes: tuple[str, ...] = ()  # decisions that differ from the request
    why_no_pin: str | None = None  # the reason, if nothing is pinned
    growth: KvGrowth | None = None  # None unless the KV cache begins small and grows
    # The policy runs on the host; the GPU's kernels never change slots.
    is_filled_by_host: bool = False
    may_stop_filling: bool = False  # the host stops filling while that costs more than it saves


def gpu_slots(
    config: ExpertConfig,
    model: ModelConfig,
    plan: TierPlan,
    place: GpuPlace,
    profile: ExpertProfile | None,
    *,
    reads_ram: bool,
    can_use_cpu: bool = True,
    num_computed: int = 0,
) -> GpuSlots | None:
    """Decides about the slots of a GPU; returns None if it has all experts of its layers.

    `reads_ram`: the GPU can read experts from RAM. `can_use_cpu`: the GPU can request experts from
    the CPU, and wait for the results. At least one of the two must be true. The CPU computes the
    experts of the first `num_computed` layers. Raises UsageError, and UnsupportedModelError if the
    model has more experts than the slot kernels support.
    """
    slotted = tuple(index for index in plan.slotted_layers if index in place.layers)
    if not slotted:
        return None
    if model.num_experts > MAX_EXPERTS or model.num_experts_per_token > MAX_USED:
        raise_unsupported(
            f"slots of {model.num_experts} experts, {model.num_experts_per_token} of a token"
        )
    layers = plan.layers[: model.num_layers]  # an MTP head runs on the CPU
    slots = tuple(layer.vram_slots if layer.index in slotted else 0 for layer in layers)
    shape = ExpertShape(model.num_experts, model.num_experts_per_token, slots, on_gpu=True)
    policy, predictor = choose_policy(config, shape, profile), choose_predictor(config, shape)
    notes = tuple[str, ...]()
    if policy.kind.prefetches:
        policy = replace(policy, kind=PolicyKind.LEARNED_KEEP)
        notes = ("on a GPU learned-prefetch can only load missed experts: using learned-keep",)
    is_filled = not reads_ram and _changes(policy) and any(slots)
    if not reads_ram:
        policy = _begun(policy)
    kind = policy.kind if reads_ram else PolicyKind.STATIC
    predicts = predictor is not None and reads_ram and place.staging.num_early > 0
    if predicts and predictor not in GPU_PREDICTORS:
        notes = (*notes, f"on a GPU the predictor is {DEFAULT_PREDICTOR}, not {predictor}")
        predictor = DEFAULT_PREDICTOR
    rules = PolicyRules(
        kind, model.num_layers, model.num_experts, model.num_experts_per_token, policy.admission
    )
    settings = SlotSettings(
        rules=rules,
        first={index: _first(policy, index, slots[index], reads_ram) for index in slotted},
        num_staging=place.staging.num_missed,
        num_early=place.staging.num_early if predicts else 0,
        num_streamed=place.staging.num_streamed,
        predictor=predictor or DEFAULT_PREDICTOR,
        reads_ram=reads_ram,
        computed=frozenset(index for index in slotted if index < num_computed),
    )
    sizes = {index: plan.layers[index].expert_bytes or 0 for index in slotted}
    reads = reads_ram and len(settings.computed) < len(slotted)
    modes = _modes(config, reads_ram=reads, can_use_cpu=can_use_cpu)
    return GpuSlots(
        settings, policy, modes, sizes, predicts, place.stash, notes, pin_note(config, policy),
        place.growth, is_filled, may_stop_filling=is_default(config, policy.kind),
    )  # fmt: skip


def _changes(policy: PolicySettings) -> bool:
    """Returns True unless the policy keeps the set of experts that it begins with."""
    return policy.kind is not PolicyKind.STATIC or policy.warm_pin > 0


def _begun(policy: PolicySettings) -> PolicySettings:
    """Returns the policy with all slots filled at the start: by the profile, or with lowest ids."""
    all_experts = (tuple(range(policy.num_experts)),) * policy.num_layers
    if _changes(policy):
        return replace(policy, warm=policy.warm or all_experts)
    return replace(policy, pinned=policy.pinned or policy.warm or all_experts, warm=())


def _first(policy: PolicySettings, layer: int, num_slots: int, reads_ram: bool) -> FirstSlots:
    """Returns a layer's first experts; if not `reads_ram`, they never change during a step."""
    warm = policy.warm[layer] if policy.warm else ()
    first = FirstSlots(num_slots, policy.pins(layer), warm)
    return first if reads_ram else FirstSlots(num_slots, tuple(first.residents(policy.kind)))


def _modes(config: ExpertConfig, *, reads_ram: bool, can_use_cpu: bool) -> tuple[MissMode, ...]:
    """Returns the miss modes to choose from."""
    if not reads_ram:
        return ("cpu",)
    possible: tuple[MissMode, ...] = (
        ("stream", "load", "cpu") if can_use_cpu else ("stream", "load")
    )
    return (config.miss,) if config.miss in possible else possible
