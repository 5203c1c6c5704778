"""Computes the sizes of the staging buffers, which hold experts that have no slot.

There are enough that no load overwrites an expert in use.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from sharpi.tiers.facts import LayerFacts, ModelFacts

# There are buffers for the experts of two tokens in a layer: those in use, and those being read.
TOKENS = 2
_CHECKED_TOKENS = 2  # with checks of drafts, buffers for the experts of two more tokens
_CHECKED_SHARE = 8  # these use at most an eighth of the memory for slots
_STREAMED_SHARE = 4  # each of a GPU's two stream buffers holds a quarter of a layer's experts
_BUDGET_SHARE = 8  # both together use at most an eighth of a GPU's memory for experts


def num_staging(model: ModelFacts) -> int:
    """Returns the least number of staging buffers; all layers share them.

    Each has the size of the largest expert.
    """
    return TOKENS * model.num_experts_per_token


def num_for_checks(model: ModelFacts, layers: Iterable[LayerFacts], free_bytes: int) -> int:
    """Returns the number of additional staging buffers for steps that check drafts.

    `free_bytes`: the bytes for slots and these buffers together. Returns 0 if that is small.
    """
    count = _CHECKED_TOKENS * model.num_experts_per_token
    return count if _CHECKED_SHARE * count * _largest(layers) <= free_bytes else 0


def staging_bytes(model: ModelFacts, layers: Iterable[LayerFacts], num_further: int = 0) -> int:
    """Returns the bytes of the staging buffers for these layers; 0 without experts.

    `num_further`: buffers in addition to those of `num_staging`. The buffers of an MTP head, which
    are separate, are included.
    """
    return ((1 + model.has_head) * num_staging(model) + num_further) * _largest(layers)


def staging_reason(model: ModelFacts, num_further: int = 0) -> str:
    """Returns the text in the plan that explains the number of staging buffers."""
    used = model.num_experts_per_token
    reason = f"{used} experts in use without a slot, and {used} read in the meantime"
    return f"{reason}; {num_further} more read ahead for drafts" if num_further else reason


class GpuStaging(Struct, frozen=True):
    """The staging buffers of a GPU: how many experts they hold, by purpose.

    The space for each expert is that of the largest expert of any layer.
    """

    num_missed: int = 0  # missed experts of one token
    num_early: int = 0  # predicted experts, for two layers
    num_streamed: int = 0  # experts in each of the two buffers that stream a prompt's experts

    @property
    def num_experts(self) -> int:
        """The number of experts that all staging buffers hold together."""
        return self.num_missed + 2 * self.num_early + 2 * self.num_streamed

    @property
    def reason(self) -> str:
        """The text in the plan that explains the size of the staging buffers."""
        return (
            f"{self.num_missed} missed experts of a token, {2 * self.num_early} predicted,"
            f" {2 * self.num_streamed} streamed for a prompt"
        )


NO_STAGING = GpuStaging()


def gpu_staging(model: ModelFacts, layers: Collection[LayerFacts], budget: int) -> GpuStaging:
    """Plans the staging buffers of a GPU; `budget`: bytes for slots and staging together."""
    if not layers:
        return NO_STAGING
    used, most = model.num_experts_per_token, max(layer.num_experts for layer in layers)
    wanted = max(used, -(-most // _STREAMED_SHARE))
    fitting = max(0, budget) // _BUDGET_SHARE // (2 * max(1, _largest(layers)))
    return GpuStaging(used, -(-used // 2), min(wanted, fitting))


def gpu_staging_bytes(staging: GpuStaging, layers: Iterable[LayerFacts]) -> int:
    """Returns the bytes of a GPU's staging buffers, if it has slots for these layers."""
    return staging.num_experts * _largest(layers)


def _largest(layers: Iterable[LayerFacts]) -> int:
    return max((layer.slot_bytes for layer in layers), default=0)
