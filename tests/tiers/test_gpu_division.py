"""How layers are divided among GPUs, of a whole model and of a rank; no budget is exceeded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tier_cases import GIB, MIB, MODELS, WISHES, model, moe_layer, plan_of

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, SlotStatus, Tier, TierPlan

LAYERS = 8


def planned(*vrams: int, **asked: object) -> TierPlan:
    """Returns the plan of eight layers of 29 MiB for these GPUs."""
    usual = {"free_vrams": vrams, "gpu_scratch": MIB, "gpus": tuple(range(len(vrams)))}
    return plan_of(model(*[moe_layer()] * LAYERS), **(usual | asked))


def layers(plan: TierPlan) -> list[range]:
    return [place.layers for place in plan.gpus]


def room(num_bytes: int) -> int:
    """Returns the VRAM that leaves these bytes for a model."""
    return RESERVE_BYTES + MIB + num_bytes


def test_equal_gpus_get_equal_parts() -> None:
    plan = planned(2 * GIB, 2 * GIB)
    assert layers(plan) == [range(4), range(4, 8)]
    assert plan.vram_slots == (8,) * LAYERS
    assert plan.status is SlotStatus.OK
    output = [line for line in plan.lines if "and the output" in line.reason]
    assert [line.reason[:6] for line in output] == ["GPU 1:"]


def test_a_larger_gpu_gets_more_layers() -> None:
    """Two and six of eight layers are what memory of one to three holds."""
    plan = planned(room(60 * MIB), room(190 * MIB))
    assert layers(plan) == [range(2), range(2, 8)]
    assert plan.vram_slots == (8,) * LAYERS


def test_a_faster_gpu_gets_what_it_can_hold() -> None:
    plan = planned(2 * GIB, room(150 * MIB), vram_rates=(200e9, 800e9))
    assert layers(plan)[1] == range(3, 8)


def test_slots_are_even_where_neither_gpu_has_all_experts() -> None:
    plan = planned(room(60 * MIB), room(60 * MIB))
    assert layers(plan) == [range(4), range(4, 8)]
    assert min(plan.vram_slots) > 0
    assert max(plan.vram_slots) - min(plan.vram_slots) <= 2


def test_one_gpu_holds_the_model_alone_unless_both_are_named() -> None:
    alone = planned(2 * GIB, 2 * GIB, gpus=())
    assert layers(alone) == [range(LAYERS)]
    assert alone.gpus[0].budget == 2 * GIB
    small = planned(room(100 * MIB), 2 * GIB, gpus=())
    assert len(small.gpus) == 2


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((3.0, 1.0), [range(6), range(6, 8)]),
        ((1.0, 1.0), [range(4), range(4, 8)]),
        ((0.0, 1.0), [range(8)]),
        ((1.0,), [range(8)]),
        ((0.2, 0.6), [range(2), range(2, 8)]),
    ],
)
def test_shares_are_of_layers(shares: tuple[float, ...], expected: list[range]) -> None:
    assert layers(planned(2 * GIB, 2 * GIB, tensor_split=shares)) == expected


def test_shares_that_do_not_fit_leave_layers_to_the_cpu() -> None:
    plan = planned(room(12 * MIB), 2 * GIB, tensor_split=(1.0, 1.0))
    assert 0 < plan.first_gpu_layer < LAYERS
    assert len(plan.gpus) == 2
    assert any("stay on the CPU" in note for note in plan.notes)


def test_a_gpu_without_room_is_left_out() -> None:
    plan = planned(100 * MIB, 2 * GIB)
    assert [(place.gpu, place.layers) for place in plan.gpus] == [(1, range(LAYERS))]


def test_no_gpu_has_room() -> None:
    plan = planned(100 * MIB, 200 * MIB)
    assert plan.gpus == ()
    assert plan.first_gpu_layer == LAYERS


def test_a_number_of_layers_takes_its_experts_along() -> None:
    plan = planned(2 * GIB, 2 * GIB, gpu_layers=4)
    assert layers(plan) == [range(4, 6), range(6, 8)]
    assert plan.vram_slots == (0, 0, 0, 0, 8, 8, 8, 8)


def test_layers_stay_with_those_whose_keys_they_read() -> None:
    reading = [replace(moe_layer(), kv_layer=2) if i > 2 else moe_layer() for i in range(LAYERS)]
    plan = plan_of(model(*reading), free_vrams=(2 * GIB, 2 * GIB), gpus=(0, 1), gpu_scratch=MIB)
    assert layers(plan) == [range(2), range(2, 8)]


@given(
    facts=MODELS,
    wishes=WISHES,
    vrams=st.lists(st.integers(0, 2 * GIB), min_size=2, max_size=4),
    shares=st.sampled_from([(), (1.0, 1.0), (3.0, 0.0, 1.0)]),
    uses_all=st.booleans(),
)
def test_no_budget_is_exceeded(
    facts: ModelFacts,
    wishes: dict[str, Any],
    vrams: list[int],
    shares: tuple[float, ...],
    uses_all: bool,
) -> None:
    gpus = tuple(range(len(vrams)))
    wishes |= {"vrams": tuple(vrams), "vram": None, "free_vrams": (0,) * len(vrams)}
    wishes |= {"tensor_split": shares[: len(vrams)], "gpus": gpus if uses_all else ()}
    plan = plan_of(facts, **wishes)
    assert all(place.num_bytes <= place.budget == vrams[place.gpu] for place in plan.gpus)
    assert sum(place.num_bytes for place in plan.gpus) == plan.bytes_in(Tier.VRAM)
    on_gpus = [i for place in plan.gpus for i in place.layers]
    assert on_gpus == list(range(plan.first_gpu_layer, len(plan.layers)))
    for layer in plan.layers[: plan.first_gpu_layer]:
        assert layer.vram_slots == 0
    assert plan.bytes_in(Tier.VRAM, Purpose.RESERVE) == RESERVE_BYTES * len(plan.gpus)


def rank_plan(layers: range, **asked: object) -> TierPlan:
    whole = model(*[moe_layer()] * 8)
    wishes: dict[str, object] = {"vram": 4 * GIB, "gpu_scratch": 0} | asked
    return plan_of(whole.only(layers), **wishes)


@pytest.mark.parametrize("layers", [range(3), range(3, 6), range(6, 8)])
def test_its_layers_are_on_its_gpu(layers: range) -> None:
    plan = rank_plan(layers)
    assert [place.layers for place in plan.gpus] == [layers]
    assert plan.first_gpu_layer == layers.start
    assert plan.notes == rank_plan(range(8)).notes
    taken = plan.bytes_in(Tier.VRAM, Purpose.DENSE_WEIGHTS)
    assert taken == (5 * len(layers) + 4 * (layers.start == 0)) * MIB  # and the output


@pytest.mark.parametrize("layers", [range(3), range(3, 6)])
def test_a_number_of_layers_counts_from_its_last(layers: range) -> None:
    assert [place.layers for place in rank_plan(layers, gpu_layers=2).gpus] == [layers[1:]]


def test_little_vram_holds_its_last_layers() -> None:
    plan = rank_plan(range(3, 6), vram=RESERVE_BYTES + 12 * MIB)
    assert [place.layers for place in plan.gpus] == [range(4, 6)]
    assert "1 of 3 layers stay on the CPU: they do not fit in VRAM" in plan.notes


def test_two_gpus_divide_its_layers() -> None:
    plan = rank_plan(range(4), vrams=(2 * GIB, 2 * GIB), gpus=(0, 1))
    assert [place.layers for place in plan.gpus] == [range(2), range(2, 4)]
