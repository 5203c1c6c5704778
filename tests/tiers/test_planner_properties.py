"""Properties of every plan: budgets are kept, and more memory is never worse."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tier_cases import BUDGETS, MACHINE, MIB, MODELS, WIDTHS, WISHES, plan_of

from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import LayerPlan, Purpose, Tier, TierPlan

Wishes = dict[str, Any]
SPEED_ORDER = [Tier.DISK, Tier.RAM, Tier.VRAM]
examples = settings(max_examples=80)


def never_worse(less: TierPlan, more: TierPlan) -> None:
    """Asserts that no layer loses a slot, a tier or, if the plan fits, a resident expert.

    Where experts come from disk to RAM, layers may lose slots on the GPU: it then has buffers for
    experts that it copies from RAM, and these take part of its memory for slots.
    """
    assert more.fits >= less.fits
    leaves_disk = Tier.DISK in expert_tiers(less) and Tier.DISK not in expert_tiers(more)
    for before, after in zip(less.layers, more.layers, strict=True):
        assert SPEED_ORDER.index(after.dense_weights) >= SPEED_ORDER.index(before.dense_weights)
        if leaves_disk:
            assert after.num_resident == after.num_experts
            continue
        assert after.vram_slots >= before.vram_slots
        if less.fits:
            assert after.num_resident >= before.num_resident
            assert tier(after) >= tier(before)


def expert_tiers(plan: TierPlan) -> set[Tier | None]:
    """Returns the tiers in which layers have their experts; None for layers without any."""
    return {layer.experts for layer in plan.layers}


def tier(layer: LayerPlan) -> int:
    """Returns the rank of the tier of its experts; faster tiers are higher."""
    return -1 if layer.experts is None else SPEED_ORDER.index(layer.experts)


@examples
@given(MODELS, WISHES)
def test_budgets_hold_and_every_byte_of_the_model_has_one_home(
    model: ModelFacts, wishes: Wishes
) -> None:
    plan = plan_of(model, **wishes)
    assert plan.bytes_in(Tier.VRAM) <= plan.vram_budget
    assert plan.fits == (plan.bytes_in(Tier.RAM) <= plan.ram_budget)
    if not plan.fits:
        assert not any(plan.ram_slots)
    in_memory = plan.bytes_in(Tier.RAM, Purpose.DENSE_WEIGHTS) + plan.bytes_in(
        Tier.VRAM, Purpose.DENSE_WEIGHTS
    )
    assert in_memory == model.dense_weights_bytes
    assert plan.speed.tokens_per_second > 0
    assert 0 <= plan.speed.hit_rate <= 1
    for layer in plan.layers:
        assert 0 <= layer.vram_slots <= layer.num_experts
        assert 0 <= layer.ram_slots <= layer.num_experts
        if layer.experts is Tier.DISK:
            assert layer.vram_slots + layer.ram_slots <= layer.num_experts
        assert layer.recommended_slots <= layer.num_experts


@pytest.mark.slow
@examples
@given(MODELS, WISHES, BUDGETS)
def test_more_ram_is_never_worse(model: ModelFacts, wishes: Wishes, more: int) -> None:
    richer = wishes | {"ram": wishes["ram"] + more}
    never_worse(plan_of(model, **wishes), plan_of(model, **richer))


def test_buffers_for_experts_from_ram_take_the_place_of_slots() -> None:
    """Of three experts one fits on the GPU while all are on disk, and none beside the buffers."""
    layers = LayerFacts(0, 0, 3, 21846, 32768), LayerFacts(0, 0)
    facts = ModelFacts(layers, 0, 0, 1, WIDTHS)
    poor: Wishes = {"context_size": 1, "batch_size": 1, "vram": 537974032}
    less = plan_of(facts, ram=0, **poor)
    more = plan_of(facts, ram=2 * MIB, **poor)
    assert (less.layers[0].experts, less.layers[0].vram_slots) == (Tier.DISK, 1)
    assert (more.layers[0].experts, more.layers[0].vram_slots) == (Tier.RAM, 0)
    never_worse(less, more)


@pytest.mark.slow
@examples
@given(MODELS, WISHES, BUDGETS)
def test_more_vram_is_never_worse(model: ModelFacts, wishes: Wishes, more: int) -> None:
    richer = wishes | {"vram": (wishes["vram"] or 0) + more}
    never_worse(plan_of(model, **wishes), plan_of(model, **richer))


@pytest.mark.slow
@examples
@given(MODELS, WISHES, st.integers(0, 1 << 40))
def test_the_free_memory_matters_only_without_a_request(
    model: ModelFacts, wishes: Wishes, free: int
) -> None:
    other = replace(MACHINE, free_ram=free)
    first, second = (plan_of(model, each, **wishes) for each in (MACHINE, other))
    assert first.layers == second.layers
    assert plan_of(model, other, **(wishes | {"ram": None})).ram_budget <= free
