"""Staging: buffers that reads land in, so that a load never overwrites an expert in use."""

from collections.abc import Iterable

from sharpi.tiers.facts import LayerFacts, ModelFacts

SPARE_BUFFERS = 2  # beside those of one token's experts: prefetches


def num_staging(model: ModelFacts) -> int:
    """Buffers of the largest expert, shared by all layers."""
    return model.num_experts_per_token + SPARE_BUFFERS


def staging_bytes(model: ModelFacts, layers: Iterable[LayerFacts]) -> int:
    """Bytes of the staging buffers of these layers; 0 without experts."""
    return num_staging(model) * max((layer.slot_bytes for layer in layers), default=0)


def staging_reason(model: ModelFacts) -> str:
    """Why there are so many."""
    used = model.num_experts_per_token
    return f"a token's {used} experts and {SPARE_BUFFERS} prefetched ones land here first"
