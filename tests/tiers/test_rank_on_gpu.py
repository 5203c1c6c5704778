"""The plan of a rank that runs some of a model's layers, and has GPUs for them."""

import pytest
from tier_cases import GIB, MIB, model, moe_layer, plan_of

from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, Tier, TierPlan


def planned(layers: range, **asked: object) -> TierPlan:
    whole = model(*[moe_layer()] * 8)
    wishes: dict[str, object] = {"vram": 4 * GIB, "gpu_scratch": 0} | asked
    return plan_of(whole.only(layers), **wishes)


@pytest.mark.parametrize("layers", [range(3), range(3, 6), range(6, 8)])
def test_its_layers_are_on_its_gpu(layers: range) -> None:
    plan = planned(layers)
    assert [place.layers for place in plan.gpus] == [layers]
    assert plan.first_gpu_layer == layers.start
    assert plan.notes == planned(range(8)).notes
    taken = plan.bytes_in(Tier.VRAM, Purpose.DENSE_WEIGHTS)
    assert taken == (5 * len(layers) + 4 * (layers.start == 0)) * MIB  # and the output


@pytest.mark.parametrize("layers", [range(3), range(3, 6)])
def test_a_number_of_layers_counts_from_its_last(layers: range) -> None:
    assert [place.layers for place in planned(layers, gpu_layers=2).gpus] == [layers[1:]]


def test_little_vram_holds_its_last_layers() -> None:
    plan = planned(range(3, 6), vram=RESERVE_BYTES + 12 * MIB)
    assert [place.layers for place in plan.gpus] == [range(4, 6)]
    assert "1 of 3 layers stay on the CPU: they do not fit in VRAM" in plan.notes


def test_two_gpus_divide_its_layers() -> None:
    plan = planned(range(4), vrams=(2 * GIB, 2 * GIB), gpus=(0, 1))
    assert [place.layers for place in plan.gpus] == [range(2), range(2, 4)]
