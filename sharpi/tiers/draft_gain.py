"""Estimates the speed-up by drafts, from the bytes that a check of several tokens reads.

Consecutive tokens share experts. `_RECORDED` has, for 2, 3, 4 and 8 tokens, the number of experts
that they read, relative to one token, on recorded routes of GPT-OSS-20B (32 experts, 4 used).
Random routes read more. The estimate ignores the time of arithmetic, so small models gain less.
"""

from collections.abc import Iterator

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.speed import DISK_READ

_RECORDED = {2: 1.55, 3: 1.97, 4: 2.30, 8: 3.20}
_COPIES = (3, 0.9)  # drafts per check, and their chance to be accepted, while text is copied
_HEADS = (1, 0.7)  # the same for an MTP head


def draft_notes(model: ModelFacts, plan: TierPlan) -> Iterator[str]:
    """Yields a sentence on drafts from text, and one on the MTP head if the model has one.

    Yields none for a plan with a GPU, or for one that does not fit.
    """
    if plan.vram_budget or not plan.fits:
        return
    count, chance = _COPIES
    yield (
        f"drafts from the text: {_range(_gains(model, plan, count, chance))} times as fast where"
        f" {chance:.0%} of {count} at a time are right, as in copies; looked for by default"
    )
    if model.has_head:
        count, chance = _HEADS
        yield (
            f"drafts of the MTP head: {_range(_gains(model, plan, count, chance, by_head=True))}"
            f" times as fast where {chance:.0%} are right; kept while they pay"
        )


def _range(gains: tuple[float, float]) -> str:
    low, high = (f"{gain:.1f}" for gain in gains)
    return low if low == high else f"{low} to {high}"


def _gains(
    model: ModelFacts, plan: TierPlan, count: int, chance: float, *, by_head: bool = False
) -> tuple[float, float]:
    """Returns the least and the highest speed-up by checks of `count` drafted tokens.

    They are for random and for recorded routes. `chance` is the chance that a drafted token is
    accepted. With `by_head`, the reads of the MTP head are included.
    """
    dense, experts = _parts(model, plan)
    tokens = sum(chance**i for i in range(count + 1))
    drafting = count * _head_bytes(model) if by_head else 0.0
    used, of = model.num_experts_per_token, max((x.num_experts for x in model.layers), default=0)
    costs = [
        (dense + experts * ratio + drafting) / (dense + experts)
        for ratio in (_distinct_experts_ratio(count + 1, used, of), _RECORDED[count + 1])
    ]
    low, high = sorted(max(1.0, tokens / cost) for cost in costs)
    return low, high


def _parts(model: ModelFacts, plan: TierPlan) -> tuple[float, float]:
    """Returns the bytes of dense weights that a token reads, and the bytes of its experts.

    If reading experts from disk takes most of the time, the bytes of dense weights count as 0.
    """
    layers = model.layers[: len(model.layers) - model.has_head]
    experts = sum(model.num_experts_per_token * (layer.expert_bytes or 0) for layer in layers)
    if plan.speed.bound == DISK_READ and experts:
        return 0.0, float(experts)
    dense = sum(layer.dense_weights_bytes for layer in layers)
    return float(dense + model.output_bytes), float(experts)


def _head_bytes(model: ModelFacts) -> float:
    """Returns the bytes that a draft of the MTP head reads: its layer, and the output matrix."""
    head = model.layers[-1]
    experts = model.num_experts_per_token * (head.expert_bytes or 0)
    return float(head.dense_weights_bytes + experts + model.output_bytes)


def _distinct_experts_ratio(tokens: int, used: int, num_experts: int) -> float:
    """Returns how many distinct experts `tokens` random routes use, relative to one route."""
    if not num_experts:
        return 1.0
    return num_experts / used * (1 - (1 - used / num_experts) ** tokens)
