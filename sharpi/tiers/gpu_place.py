"""GpuPlace: one GPU's part of a plan: its layers, and its memory for their experts."""

from msgspec import Struct

from sharpi.tiers.kv_growth import KvGrowth
from sharpi.tiers.prompt_stash import NO_STASH, StashPlan
from sharpi.tiers.staging import NO_STAGING, GpuStaging


class GpuPlace(Struct, frozen=True):
    """The layers, memory and buffers of one GPU in a plan."""

    gpu: int  # index among the request's GPUs
    first: int  # its first layer
    end: int  # the layer after its last one
    budget: int  # budget in bytes
    num_bytes: int  # bytes taken of the budget
    staging: GpuStaging = NO_STAGING  # buffers for experts without a slot, if there are any
    stash: StashPlan = NO_STASH  # memory for prompts that are computed layer by layer
    growth: KvGrowth | None = None  # None unless the KV cache begins small
    embeds: bool = False  # holds the embedding in addition to all layers with all their experts

    @property
    def layers(self) -> range:
        """The indices of the layers on this GPU."""
        return range(self.first, self.end)
