"""GpuPlace: one GPU's part of a planned model: its layers, and its room for their experts."""

from msgspec import Struct

from sharpi.tiers.kv_growth import KvGrowth
from sharpi.tiers.prompt_stash import NO_STASH, StashPlan
from sharpi.tiers.staging import NO_STAGING, GpuStaging


class GpuPlace(Struct, frozen=True):
    """One GPU's part of a plan."""

    gpu: int  # index among the request's GPUs
    first: int  # its first layer
    end: int  # the layer after its last one
    budget: int  # budget in bytes
    num_bytes: int  # bytes taken of the budget
    staging: GpuStaging = NO_STAGING  # room for experts without a slot, if there are any
    stash: StashPlan = NO_STASH  # room for prompts that are computed layer by layer
    growth: KvGrowth | None = None  # None unless the KV cache begins small
    embeds: bool = False  # also holds the embedding, besides all layers with all their experts

    @property
    def layers(self) -> range:
        """The indices of its layers."""
        return range(self.first, self.end)
