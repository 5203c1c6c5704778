"""Staging: buffers that reads land in, so that a load never overwrites an expert in use."""

from collections.abc import Iterable

from sharpi.tiers.facts import LayerFacts, ModelFacts

TOKENS = 2  # whose experts of a layer find room: those in use, and those read meanwhile


def num_staging(model: ModelFacts) -> int:
    """Buffers of the largest expert, shared by all layers."""
    return TOKENS * model.num_experts_per_token


def staging_bytes(model: ModelFacts, layers: Iterable[LayerFacts]) -> int:
    """Bytes of the staging buffers of these layers; 0 without experts."""
    return num_staging(model) * max((layer.slot_bytes for layer in layers), default=0)


def staging_reason(model: ModelFacts) -> str:
    """Why there are so many."""
    used = model.num_experts_per_token
    return f"{used} experts in use without a slot, and {used} read in the meantime"
