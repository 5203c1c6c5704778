"""GpuPlace: one GPU's part of a planned model: its layers, and its room for their experts."""

from msgspec import Struct

from sharpi.tiers.kv_growth import KvGrowth
from sharpi.tiers.prompt_stash import NO_STASH, StashPlan
from sharpi.tiers.staging import NO_STAGING, GpuStaging


class GpuPlace(Struct, frozen=True):
    """One GPU's part of a plan."""

    gpu: int  # its index among the GPUs of the request
    first: int  # its first layer
    end: int  # the layer after its last one
    budget: int  # bytes
    num_bytes: int  # taken of them
    staging: GpuStaging = NO_STAGING  # room for other experts, if not all have slots
    stash: StashPlan = NO_STASH  # room for prompts that pass layer by layer
    growth: KvGrowth | None = None  # if the KV cache begins small
    embeds: bool = False  # it has the embedding too, beside all layers with all their experts

    @property
    def layers(self) -> range:
        """The indices of its layers."""
        return range(self.first, self.end)
