"""Makes the parts that run a model as planned: layers on the CPU first, then those on GPUs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sharpi.device.device import Device
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart, SlotTier
from sharpi.engine.backends.slot_tiers import joined
from sharpi.engine.settings import EngineSettings
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.tiers.plan import TierPlan

if TYPE_CHECKING:
    from sharpi.engine.backends.copied_keys import Source
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.slots import GpuSlots


def make_parts(
    devices: Sequence[Device],
    plan: TierPlan | None,
    config: ModelConfig,
    weights: ModelWeights,
    settings: EngineSettings,
    tier: "ExpertTier | None",
    slots: "Sequence[GpuSlots | None]",
    layers: range | None = None,
    *,
    keeps_router_logits: bool,
) -> list[ModelPart]:
    """Returns a part for each processor, in the order of their layers.

    A GPU that has all layers also looks up the embedding if the plan says so, if the output matrix
    is the same tensor, or if it can read the embedding in RAM beside experts. `slots` has an entry
    for each GPU of the plan, None for a GPU with all experts of its layers. `layers` are the layers
    of this machine, if other machines run the others; the part then has no output.
    """
    if not devices or plan is None or not plan.gpus:
        return [
            CpuPart(
                config, weights, settings, tier=tier, keeps_router_logits=keeps_router_logits,
                layers=layers, has_output=None if layers is None else False,
                keeps_hidden=config.has_head,
            )
        ]  # fmt: skip
    return _with_gpus(
        devices, slots, tier, plan, config, weights, settings, layers,
        keeps_router_logits=keeps_router_logits,
    )  # fmt: skip


def _with_gpus(
    devices: Sequence[Device],
    slots: "Sequence[GpuSlots | None]",
    tier: "ExpertTier | None",
    plan: TierPlan,
    config: ModelConfig,
    weights: ModelWeights,
    settings: EngineSettings,
    layers: range | None,
    *,
    keeps_router_logits: bool,
) -> list[ModelPart]:
    """Returns the parts with the plan's layers on GPUs, and imports their modules."""
    from sharpi.engine.backends.gpu.part import GpuPart
    from sharpi.engine.backends.gpu.reach import lent_embedding

    places = plan.gpus
    has_all = len(places[0].layers) == config.num_layers
    has_output = None if layers is None else False
    lent = None
    embeds = (
        layers is None and has_all and (places[0].embeds or weights.embedding is weights.output)
    )
    if layers is None and has_all and not embeds:
        lent = lent_embedding(devices[places[0].gpu], config, weights, slots[0])
        embeds = lent is not None
    gpus: list[ModelPart] = [
        GpuPart(
            devices[place.gpu], config, weights, settings,
            layers=place.layers, embeds=embeds, has_output=has_output,
            hands_on=place is not places[-1],
            slots=own, tier=tier, keeps_router_logits=keeps_router_logits,
            keeps_hidden=config.has_head, embedding=lent,
        )
        for place, own in zip(places, slots, strict=True)
    ]  # fmt: skip
    first = 0 if layers is None else layers.start
    if embeds or 0 < first == places[0].first:
        return gpus
    host = CpuPart(
        config, weights, settings, layers=range(first, places[0].first), tier=tier,
        keeps_router_logits=keeps_router_logits,
    )  # fmt: skip
    return [host, *gpus]


def make_output(
    after: ModelPart, config: ModelConfig, weights: ModelWeights, settings: EngineSettings
) -> ModelPart:
    """Returns a part without layers, which computes the logits on the processor of `after`."""
    end = range(config.num_layers, config.num_layers)
    if isinstance(after, CpuPart):
        return CpuPart(
            config, weights, settings, layers=end, has_output=True, pool=after.pool,
            keeps_hidden=config.has_head,
        )  # fmt: skip
    from sharpi.engine.backends.gpu.part import GpuPart

    assert isinstance(after, GpuPart)  # parts of this machine are on a CPU or a GPU
    return GpuPart(
        after.device, config, weights, settings, layers=end, embeds=False, has_output=True,
        keeps_hidden=config.has_head,
    )  # fmt: skip


def gpu_of(part: ModelPart) -> Device | None:
    """Returns the GPU that a part of this machine runs on; None for the CPU."""
    if isinstance(part, CpuPart):
        return None
    from sharpi.engine.backends.gpu.part import GpuPart

    return part.device if isinstance(part, GpuPart) else None


def hand_on(part: ModelPart) -> None:
    """Leaves the results of a part on a GPU in its memory, from which they are sent."""
    from sharpi.engine.backends.gpu.part import GpuPart

    assert isinstance(part, GpuPart)  # it has a line to another GPU
    part.hand_on()


def keys_by_layer(parts: Iterable[ModelPart]) -> "dict[int, Source]":
    """Returns the memory that has the keys and values of each layer."""
    found: dict[int, Source] = {}
    for part in parts:
        if isinstance(part, CpuPart):
            found |= dict.fromkeys(part.cache.layers, part.cache)
            continue
        from sharpi.engine.backends.gpu.part import GpuPart

        assert isinstance(part, GpuPart)  # other machines' parts have no keys on this machine
        found |= dict.fromkeys(part.cache.layers, part.cache)
    return found


def gpu_tier_of(parts: Iterable[ModelPart]) -> SlotTier | None:
    """Returns the owner of the slots on GPUs, or None."""
    return joined([part.gpu_tier for part in parts if part.gpu_tier is not None])
