"""Sizes the staging buffers for experts without a slot, so that no load overwrites another."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from sharpi.tiers.facts import LayerFacts, ModelFacts

# Tokens whose experts in a layer have buffers: those in use, and those read in the meantime.
TOKENS = 2
_CHECKED_TOKENS = 2  # further tokens, whose experts a check of drafts reads ahead
_CHECKED_SHARE = 8  # these take at most one part in eight of the room for slots
_STREAMED_SHARE = 4  # each of a GPU's two buffers holds a quarter of a layer's experts
_BUDGET_SHARE = 8  # both together take at most one part in eight of a GPU's memory for experts


def num_staging(model: ModelFacts) -> int:
    """Returns the least number of buffers of the largest expert's size, shared by all layers."""
    return TOKENS * model.num_experts_per_token


def num_for_checks(model: ModelFacts, layers: Iterable[LayerFacts], room: int) -> int:
    """Returns the number of additional buffers if steps check drafts.

    `room`: the bytes for slots and these buffers together. If that is small, there are none.
    """
    count = _CHECKED_TOKENS * model.num_experts_per_token
    return count if _CHECKED_SHARE * count * _largest(layers) <= room else 0


def staging_bytes(model: ModelFacts, layers: Iterable[LayerFacts], num_further: int = 0) -> int:
    """Returns the bytes of the staging buffers of these layers; 0 without experts.

    `num_further`: buffers in addition to those of `num_staging`. The MTP head's own buffers are
    included.
    """
    return ((1 + model.has_head) * num_staging(model) + num_further) * _largest(layers)


def staging_reason(model: ModelFacts, num_further: int = 0) -> str:
    """Returns the reason for the number of staging buffers."""
    used = model.num_experts_per_token
    reason = f"{used} experts in use without a slot, and {used} read in the meantime"
    return f"{reason}; {num_further} more read ahead for drafts" if num_further else reason


class GpuStaging(Struct, frozen=True):
    """Room on a GPU for experts without a slot, in experts of the largest layer."""

    num_missed: int = 0  # missed experts of one token
    num_early: int = 0  # predicted experts, for two layers
    num_streamed: int = 0  # experts in each of the two buffers that stream a prompt's experts

    @property
    def num_experts(self) -> int:
        """The number of experts that fit in."""
        return self.num_missed + 2 * self.num_early + 2 * self.num_streamed

    @property
    def reason(self) -> str:
        """The reason for its size."""
        return (
            f"{self.num_missed} missed experts of a token, {2 * self.num_early} predicted,"
            f" {2 * self.num_streamed} streamed for a prompt"
        )


NO_STAGING = GpuStaging()


def gpu_staging(model: ModelFacts, layers: Collection[LayerFacts], budget: int) -> GpuStaging:
    """Plans the staging buffers of a GPU; `budget`: bytes for experts and staging together."""
    if not layers:
        return NO_STAGING
    used, most = model.num_experts_per_token, max(layer.num_experts for layer in layers)
    wanted = max(used, -(-most // _STREAMED_SHARE))
    fitting = max(0, budget) // _BUDGET_SHARE // (2 * max(1, _largest(layers)))
    return GpuStaging(used, -(-used // 2), min(wanted, fitting))


def gpu_staging_bytes(staging: GpuStaging, layers: Iterable[LayerFacts]) -> int:
    """Returns the bytes of a GPU's staging buffers, for these layers."""
    return staging.num_experts * _largest(layers)


def _largest(layers: Iterable[LayerFacts]) -> int:
    return max((layer.slot_bytes for layer in layers), default=0)
