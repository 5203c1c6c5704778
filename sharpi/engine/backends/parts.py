"""Makes the parts that run a model as planned: layers on the CPU first, then those on a GPU."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sharpi.device.device import Device
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart, SlotTier
from sharpi.engine.settings import EngineSettings
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.tiers.plan import TierPlan

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.slots import GpuSlots


def make_parts(
    device: Device | None,
    plan: TierPlan | None,
    config: ModelConfig,
    weights: ModelWeights,
    settings: EngineSettings,
    tier: "ExpertTier | None",
    slots: "GpuSlots | None",
    layers: range | None = None,
    *,
    keeps_router_logits: bool,
) -> list[ModelPart]:
    """Returns one or two parts; a GPU looks up the embedding if that is its output matrix, too.

    `slots`: for a GPU without some experts of its layers. With `layers`, other machines run the
    other layers, and the output is no part of these.
    """
    first = config.num_layers
    if device is not None and plan is not None:
        first = plan.first_gpu_layer
    if device is None or plan is None or first == config.num_layers:
        return [
            CpuPart(
                config, weights, settings, tier=tier, keeps_router_logits=keeps_router_logits,
                layers=layers, has_output=None if layers is None else False,
                keeps_hidden=config.has_head,
            )
        ]  # fmt: skip
    return _with_gpu(device, slots, tier, first, config, weights, settings, keeps_router_logits)


def _with_gpu(
    device: Device,
    slots: "GpuSlots | None",
    tier: "ExpertTier | None",
    first: int,
    config: ModelConfig,
    weights: ModelWeights,
    settings: EngineSettings,
    keeps_router_logits: bool,
) -> list[ModelPart]:
    """Returns the parts with layers from `first` on on the GPU, and imports its modules."""
    from sharpi.engine.backends.gpu.part import GpuPart

    embeds = first == 0 and weights.embedding is weights.output
    gpu = GpuPart(
        device, config, weights, settings, first_layer=first, embeds=embeds,
        slots=slots, tier=tier,
        keeps_router_logits=keeps_router_logits,
    )  # fmt: skip
    if embeds:
        return [gpu]
    host = CpuPart(
        config, weights, settings, layers=range(first), tier=tier,
        keeps_router_logits=keeps_router_logits,
    )  # fmt: skip
    return [host, gpu]


def gpu_tier_of(parts: Iterable[ModelPart]) -> SlotTier | None:
    """Returns the owner of a GPU's slots, or None."""
    return next((part.gpu_tier for part in parts if part.gpu_tier is not None), None)
