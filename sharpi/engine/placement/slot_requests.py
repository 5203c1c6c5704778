"""Decides which slots to use, and by which policy, in each tier: on a GPU, and in RAM."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from sharpi.config import ExpertConfig, RunConfig
from sharpi.experts.policy_settings import POLICIES, PolicyKind
from sharpi.tiers.plan import TierPlan

# The policies that rank experts by their uses alone.
PLAIN_POLICIES = tuple(
    name for name, kind in POLICIES.items() if not kind.is_learned and kind is not PolicyKind.STATIC
)


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


def resident_notes(config: RunConfig, plan: TierPlan) -> Iterator[str]:
    """Yields a note if something was asked of expert slots, and no expert ever moves."""
    records: dict[str, Any] = {"stats": None, "trace": None, "profile": None, "trace_routes": False}
    asks_nothing = replace(config.experts, **records) == ExpertConfig()
    if asks_nothing and config.moe_slots is None:
        return
    if not any(layer.num_experts for layer in plan.layers):
        yield "the model has no routed experts: --moe options have no effect"
    elif all(layer.is_resident for layer in plan.layers):
        yield "all experts are resident: --moe options have no effect"


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
