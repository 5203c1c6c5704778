"""Makes the parts that run a model as planned: layers on the CPU first, then those on GPUs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.device.launch import Memory
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart, SlotTier
from sharpi.engine.backends.recorded_part import PartCache, PartModel, RecordedPart
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.tiers.plan import GpuPlace, TierPlan
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.slots import GpuSlots


def make_parts(
    whole: PartModel,
    devices: Sequence[Device],
    plan: TierPlan | None,
    tier: "ExpertTier | None",
    slots: "Sequence[GpuSlots | None]",
) -> list[ModelPart]:
    """Returns a part for each processor, of the layers that this machine runs of `whole`.

    `slots` has an entry for each GPU of the plan, None if it has all experts of its layers.
    """
    config, first = whole.config, whole.layers.start
    if not devices or plan is None or not plan.gpus:
        return [CpuPart(replace(whole, embeds=first == 0), tier)]
    from sharpi.engine.backends.gpu.part import GpuPart

    places, embeds, in_ram = plan.gpus, False, None
    if len(places[0].layers) == config.num_layers:
        embeds, in_ram = _embedding(devices[places[0].gpu], places[0], whole, slots[0])
    gpus: list[ModelPart] = [
        GpuPart(
            devices[place.gpu], _with_layers(whole, place.layers, embeds=embeds),
            keeps_results=place is not places[-1], slots=own, tier=tier, embedding=in_ram,
        )
        for place, own in zip(places, slots, strict=True)
    ]  # fmt: skip
    if embeds or 0 < first == places[0].first:
        return gpus
    on_cpu = _with_layers(whole, range(first, places[0].first), embeds=first == 0)
    return [CpuPart(on_cpu, tier), *gpus]


def _with_layers(whole: PartModel, layers: range, *, embeds: bool) -> PartModel:
    """Returns the part of `whole` with these layers; only the last one computes logits."""
    is_last = whole.has_output and layers.stop == whole.config.num_layers
    keeps_hidden = whole.keeps_hidden and is_last
    return replace(
        whole, layers=layers, embeds=embeds, has_output=is_last, keeps_hidden=keeps_hidden
    )


def _embedding(
    device: Device, place: GpuPlace, whole: PartModel, slots: "GpuSlots | None"
) -> tuple[bool, Memory | None]:
    """Returns True if a GPU with all layers looks up the embedding, and the RAM that it reads."""
    from sharpi.engine.backends.gpu.miss_capabilities import page_locked_embedding

    weights = whole.weights
    if place.embeds or weights.embedding is weights.output:
        return True, None
    in_ram = page_locked_embedding(device, whole.config, weights, slots)
    return in_ram is not None, in_ram


def make_output(
    after: ModelPart, config: ModelConfig, weights: ModelWeights, settings: EngineSettings
) -> ModelPart:
    """Returns a part without layers, which computes the logits on the processor of `after`."""
    end = range(config.num_layers, config.num_layers)
    own = PartModel(config, weights, settings, end, embeds=False, keeps_hidden=config.has_head)
    if isinstance(after, CpuPart):
        return CpuPart(own, pool=after.pool)
    from sharpi.engine.backends.gpu.part import GpuPart

    assert after.device is not None  # parts of this machine are on a CPU or a GPU
    return GpuPart(after.device, own)


def keys_by_layer(parts: Iterable[ModelPart]) -> dict[int, PartCache]:
    """Returns, for each layer on this machine, the KV cache that has its keys and values."""
    caches = (part.cache for part in parts if isinstance(part, RecordedPart))
    return {layer: cache for cache in caches for layer in cache.layers}


def gpu_tier_of(parts: Iterable[ModelPart]) -> SlotTier | None:
    """Returns the expert slots of all GPUs as one SlotTier; None if no GPU has slots."""
    tiers = [part.gpu_tier for part in parts if part.gpu_tier is not None]
    if len(tiers) < 2:
        return next(iter(tiers), None)
    from sharpi.engine.backends.slot_tiers import SlotTiers

    return SlotTiers(tiers)
