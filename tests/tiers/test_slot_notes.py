"""The lines about slots that are shown when a model is loaded, on every tier."""

from tier_cases import GIB, MIB, model, plan_of

from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.slot_notes import slot_notes


def plan(**wishes: object) -> TierPlan:
    return plan_of(model(), **wishes)


def test_a_model_that_is_mapped_has_none() -> None:
    assert list(slot_notes(plan())) == []


def test_enough_slots_in_ram() -> None:
    (line,) = slot_notes(plan(moe_slots=5))
    assert line.startswith("5 of a layer's 8 experts have a slot in RAM, the others are read from")
    assert line.endswith("; ok: 4 or more are recommended)")


def test_too_few_slots_in_ram() -> None:
    (line,) = slot_notes(plan(moe_slots=2), is_limited=True)
    assert line.endswith("; below-recommended: 0.50 of the 4 recommended, raise --moe-slots)")
    (line,) = slot_notes(plan(ram=70 * MIB))
    assert line.endswith("of the 4 recommended, raise --ram or lower -c)")


def test_slots_on_a_gpu() -> None:
    few = plan(vram=RESERVE_BYTES + 75 * MIB)
    assert set(few.vram_slots) == {2, 3}
    (line,) = slot_notes(few)
    assert line.startswith("2 to 3 of a layer's 8 experts have a slot in VRAM, the others are in")
    assert "; below-recommended: 0.50 of the 4 recommended, raise --vram" in line


def test_no_room_for_slots_on_a_gpu() -> None:
    (line,) = slot_notes(plan(vram=RESERVE_BYTES + 30 * MIB))
    assert line.startswith("0 of a layer's 8 experts have a slot in VRAM")
    assert "budget-exhausted: 0.00 of the 4" in line


def test_all_experts_on_a_gpu() -> None:
    (line,) = slot_notes(plan(vram=GIB))
    assert line.startswith("all 8 experts of each layer have a slot in VRAM (")
    assert line.endswith("ok: 4 or more are recommended)")


def test_slots_on_a_gpu_and_in_ram() -> None:
    vram, ram = slot_notes(plan(vram=RESERVE_BYTES + 60 * MIB, ram=60 * MIB))
    assert "a slot in VRAM, the others are in RAM or on disk" in vram
    assert "recommended" in vram
    assert "a slot in RAM, the others are read from disk" in ram
    assert "recommended" not in ram


def test_experts_kept_off_the_gpu_have_none() -> None:
    assert list(slot_notes(plan(vram=GIB, cpu_moe=True))) == []
