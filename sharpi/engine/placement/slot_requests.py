"""Decides which slots to use, and by which policy, in each tier: on a GPU, and in RAM."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sharpi.config import ExpertConfig, RunConfig
from sharpi.experts.policy_choice import ExpertShape, choose_policy
from sharpi.experts.policy_settings import POLICIES, PolicyKind, PolicySettings
from sharpi.experts.profile import ExpertProfile
from sharpi.model.config import ModelConfig
from sharpi.tiers.plan import TierPlan

# The policies that rank experts by their uses alone.
PLAIN_POLICIES = tuple(
    name for name, kind in POLICIES.items() if not kind.is_learned and kind is not PolicyKind.STATIC
)

if TYPE_CHECKING:
    from sharpi.engine.backends.gpu.slots import GpuSlots


def ram_request(config: RunConfig, plan: TierPlan | None) -> ExpertConfig:
    """Returns the options for experts as they apply to the slots in RAM.

    With a GPU these slots only get a plain policy: they see the GPU's misses alone, which are too
    few to learn from. They pin no experts if VRAM does, unless a fixed set was asked for. If GPUs
    have all layers, their routers predict which experts are read from disk early.
    """
    asked = config.experts
    if plan is None or not has_gpu_layers(plan):
        return asked
    is_plain = asked.policy in PLAIN_POLICIES
    pins_here = asked.policy == "static" or asked.resident is not None or not _has_slots(plan)
    return replace(
        asked,
        policy=asked.policy if is_plain else "slru",
        warm_pin=asked.warm_pin if pins_here else 0,
        prefetch=asked.prefetch and plan.first_gpu_layer == 0,
        predictor=None, resident=None, resident_ids=None,
    )  # fmt: skip


def may_map(config: RunConfig, plan: TierPlan) -> bool:
    """Returns True if slots in RAM may be given up for the mapped file while the model runs.

    They may if the user set nothing about them, and no GPU reads them. With a budget for RAM, the
    mapped file would take more of the page cache than the budget.
    """
    is_asked = config.ram is not None or config.moe_slots is not None or config.load == "copy"
    asked, usual = config.experts, ExpertConfig()
    chosen = ("policy", "load_budget", "warm_pin", "warm_pin_after", "prefetch", "predictor",
              "resident", "resident_ids")  # fmt: skip
    is_usual = all(getattr(asked, name) == getattr(usual, name) for name in chosen)
    return is_usual and not is_asked and not has_gpu_layers(plan)


def file_notes(config: RunConfig, plan: TierPlan) -> Iterator[str]:
    """Yields a note if slots in RAM may be given up for the mapped file while the model runs."""
    if any(layer.ram_slots for layer in plan.layers) and may_map(config, plan):
        yield (
            "slots in RAM give way to the mapped file while the model runs, if that is measured to"
            " be faster; --moe-slots keeps them"
        )


def _has_slots(plan: TierPlan) -> bool:
    return any(layer.vram_slots for layer in plan.layers)


def has_gpu_layers(plan: TierPlan) -> bool:
    """Returns True if some layers run on a GPU."""
    return plan.first_gpu_layer < len(plan.layers)


def gpu_request(
    config: RunConfig, model: ModelConfig, plan: TierPlan | None, profile: ExpertProfile | None
) -> "GpuSlots | None":
    """Returns the planned slots of the first GPU that lacks experts; None if none does.

    All GPUs use their slots alike. Modules are imported only if there is a GPU. For a loaded model
    the driver may limit the choice further: see `find_miss_capabilities`.
    """
    if plan is None or not has_gpu_layers(plan):
        return None
    from sharpi.engine.backends.gpu.slots import gpu_slots

    reads_ram = plan.is_mapped and not config.cpu_moe
    found = (
        gpu_slots(
            config.experts, model, plan, place, profile,
            reads_ram=reads_ram, num_computed=config.num_cpu_moe,
        )
        for place in plan.gpus
    )  # fmt: skip
    return next((slots for slots in found if slots is not None), None)


def ram_policy(
    config: RunConfig, model: ModelConfig, plan: TierPlan, profile: ExpertProfile | None
) -> PolicySettings | None:
    """Returns the policy of the slots in RAM, from a plan alone; None if all experts are mapped."""
    if plan.is_mapped:
        return None
    shape = ExpertShape(
        model.num_experts,
        model.num_experts_per_token,
        plan.ram_slots[: model.num_layers],
        uses_small_maps=plan.uses_small_maps,
    )
    return choose_policy(ram_request(config, plan), shape, profile)
