"""Estimates what drafts can gain on a model, from the bytes that a check of several tokens reads.

Successive tokens share experts. On recorded routes of GPT-OSS-20B (32 experts, 4 used), `_RECORDED`
lists how many times one token's experts 2, 3, 4 and 8 tokens read. Random routes read more. The
estimate ignores the time of arithmetic, so small models gain less than it says.
"""

from collections.abc import Iterator

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.speed import DISK_READ

_RECORDED = {2: 1.55, 3: 1.97, 4: 2.30, 8: 3.20}
_COPIES = (3, 0.9)  # drafts per check, and the chance that one is right, if text is being copied
_HEADS = (1, 0.7)  # the same for an MTP head


def draft_notes(model: ModelFacts, plan: TierPlan) -> Iterator[str]:
    """Yields a sentence on drafts from text, and one on the MTP head if the model has one."""
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
    """Returns the least and the highest speed-up by `count` drafts: random and recorded routes."""
    dense, experts = _parts(model, plan)
    tokens = sum(chance**i for i in range(count + 1))
    drafting = count * _head_bytes(model) if by_head else 0.0
    used, of = model.num_experts_per_token, max((x.num_experts for x in model.layers), default=0)
    costs = [
        (dense + experts * ratio + drafting) / (dense + experts)
        for ratio in (_unlike(count + 1, used, of), _RECORDED[count + 1])
    ]
    low, high = sorted(max(1.0, tokens / cost) for cost in costs)
    return low, high


def _parts(model: ModelFacts, plan: TierPlan) -> tuple[float, float]:
    """Returns the bytes of dense weights that a token reads, and those of its experts.

    If reading experts from disk dominates, dense weights count as 0.
    """
    layers = model.layers[: len(model.layers) - model.has_head]
    experts = sum(model.num_experts_per_token * (layer.expert_bytes or 0) for layer in layers)
    if plan.speed.bound == DISK_READ and experts:
        return 0.0, float(experts)
    dense = sum(layer.dense_weights_bytes for layer in layers)
    return float(dense + model.output_bytes), float(experts)


def _head_bytes(model: ModelFacts) -> float:
    """Returns the bytes that a draft of the head reads: its layer, and the output matrix."""
    head = model.layers[-1]
    experts = model.num_experts_per_token * (head.expert_bytes or 0)
    return float(head.dense_weights_bytes + experts + model.output_bytes)


def _unlike(tokens: int, used: int, num_experts: int) -> float:
    """Returns the experts that `tokens` random routes use, as a multiple of one token's."""
    if not num_experts:
        return 1.0
    return num_experts / used * (1 - (1 - used / num_experts) ** tokens)
