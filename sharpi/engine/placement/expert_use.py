"""ExpertUse: how a loaded model uses its experts, as far as the flags about them are concerned."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from sharpi.config import ExpertConfig, RunConfig
from sharpi.engine.placement.slot_requests import ram_request
from sharpi.experts.policy_choice import LEARNED, ExpertShape, choose_predictor
from sharpi.experts.policy_settings import POLICIES, PolicySettings
from sharpi.experts.profile import ExpertProfile
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.library import instruction_set
from sharpi.tiers.plan import TierPlan

if TYPE_CHECKING:
    from sharpi.engine.backends.gpu.slots import GpuSlots

_NAMES = {kind: name for name, kind in POLICIES.items()}
_FEATURES = {"avx512_vbmi": ("vnni", "vbmi"), "avx512_vnni": ("vnni",)}
_ONLY_PROMPTS = ("perplexity", "logits")  # commands that decode nothing


class SlotUse(Struct, frozen=True):
    """The policy, predictor and number of one tier's slots."""

    policy: str
    predictor: str | None = None  # None if nothing is predicted
    warm_pin: int = 0  # experts that a layer pins
    num_slots: int = 0  # the fewest of any layer that has some
    all_fit: bool = False  # each expert has a slot


class ExpertUse(Struct, frozen=True):
    """The facts about a model's experts on which the effect of flags depends.

    `gpu` and `ram` describe the slots of these tiers; None if a tier has none.
    """

    num_experts: int = 0  # of a layer; 0 in a dense model
    first_gpu_layer: int | None = None  # None without a GPU
    gpu: SlotUse | None = None
    ram: SlotUse | None = None
    miss: str | None = None  # the miss mode of the GPU's slots; None if it is chosen while running
    reads_ram: bool = False  # the GPU reads experts from RAM
    has_stash: bool = False
    has_profile: bool = False
    only_prompts: bool = False  # nothing is decoded
    cpu_features: tuple[str, ...] = ()  # of the machine's best kernels, which can be switched off

    @property
    def slots(self) -> SlotUse | None:
        """The slots whose policy the flags set: those on the GPU, or otherwise those in RAM."""
        return self.gpu if self.gpu is not None and self.gpu.num_slots else self.ram

    @property
    def is_unreached(self) -> bool:
        """True if there are layers on a GPU and slots, but the GPU cannot read experts from RAM."""
        return self.first_gpu_layer is not None and self.slots is not None and not self.reads_ram


def expert_use(
    config: RunConfig,
    model: ModelConfig,
    plan: TierPlan | None,
    profile: ExpertProfile | None,
    gpu: "GpuSlots | None",
    ram_policy: PolicySettings | None,
) -> ExpertUse:
    """Returns the facts about a model's experts on which the effect of flags depends.

    `gpu`: the slots on a GPU, and `ram_policy`: the policy of slots in RAM; None without such
    slots.
    """
    features = _FEATURES.get(instruction_set(), ())
    num_experts = model.num_experts if model.is_moe else 0
    if plan is None:
        return ExpertUse(num_experts, cpu_features=features)
    first = plan.first_gpu_layer
    first_gpu_layer = first if first < len(plan.layers) else None
    if not num_experts:
        return ExpertUse(0, first_gpu_layer, cpu_features=features)
    modes = () if gpu is None else gpu.modes
    return ExpertUse(
        num_experts=num_experts,
        first_gpu_layer=first_gpu_layer,
        cpu_features=features,
        gpu=None if gpu is None else _of_gpu(gpu),
        ram=None if ram_policy is None else _of_ram(ram_request(config, plan), plan, ram_policy),
        miss=modes[0] if len(modes) == 1 else None,
        reads_ram=gpu is not None and gpu.settings.reads_ram,
        has_stash=any(place.stash.max_tokens > 0 for place in plan.gpus),
        has_profile=profile is not None and bool(profile.uses.any()),
        only_prompts=config.given.command in _ONLY_PROMPTS,
    )


def _of_gpu(gpu: "GpuSlots") -> SlotUse:
    return SlotUse(
        policy=_NAMES[gpu.policy.kind],
        predictor=gpu.settings.predictor if gpu.predicts else None,
        warm_pin=gpu.policy.warm_pin,
        num_slots=_fewest(first.num_slots for first in gpu.settings.first.values()),
    )


def _fewest(slots: Iterable[int]) -> int:
    return min(filter(None, slots), default=0)


def _of_ram(asked: ExpertConfig, plan: TierPlan, policy: PolicySettings) -> SlotUse:
    shape = ExpertShape(policy.num_experts, policy.experts_per_token, plan.ram_slots)
    is_learned = asked.predictor == LEARNED and asked.prefetch
    return SlotUse(
        policy=_NAMES[policy.kind],
        predictor=LEARNED if is_learned else choose_predictor(asked, shape),
        warm_pin=policy.warm_pin,
        num_slots=_fewest(shape.slots),
        all_fit=shape.all_fit,
    )
