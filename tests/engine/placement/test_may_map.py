"""Slots may give way to the mapped file only where the user chose nothing about them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sharpi.engine.placement.placement import Placement, file_notes, may_map
from sharpi.engine.settings import decide
from sharpi.gguf.reader import open_gguf
from sharpi.hardware.info import probe_hardware
from sharpi.model.config import read_config
from sharpi.resources import demo_model
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers.plan import TierPlan

USUAL = RunConfig(demo_model())


@pytest.fixture(scope="module")
def plan() -> TierPlan:
    hardware = probe_hardware()
    with open_gguf(USUAL.model) as file:
        model = read_config(file)
        settings = decide(USUAL, file, model, hardware)
        return Placement(USUAL, file, model, settings, hardware).plan()


def test_by_default_they_may(plan: TierPlan) -> None:
    assert may_map(USUAL, plan)


@pytest.mark.parametrize(
    "asked", [{"ram": 1 << 30}, {"moe_slots": 4}, {"load": "copy"}], ids=lambda asked: str(asked)
)
def test_not_with_a_budget_or_copies(asked: dict[str, Any], plan: TierPlan) -> None:
    assert not may_map(replace(USUAL, **asked), plan)


@pytest.mark.parametrize(
    "asked",
    [
        {"policy": "learned-prefetch"},
        {"load_budget": 3.0},
        {"warm_pin": 0},
        {"warm_pin_after": 20},
        {"prefetch": False},
        {"predictor": "router"},
        {"resident": "first-n"},
        {"resident_ids": "1,2"},
    ],
    ids=str,
)
def test_not_with_flags_about_slots(asked: dict[str, Any], plan: TierPlan) -> None:
    assert not may_map(replace(USUAL, experts=ExpertConfig(**asked)), plan)


def test_records_change_nothing(plan: TierPlan) -> None:
    records = ExpertConfig(stats=Path("s.json"), trace=Path("t.npz"), profile=Path("p.json"))
    assert may_map(replace(USUAL, experts=records), plan)


def test_the_plan_says_so_where_there_are_slots(plan: TierPlan) -> None:
    assert list(file_notes(USUAL, plan)) == []
    layers = tuple(replace(layer, ram_slots=3) for layer in plan.layers)
    (note,) = file_notes(USUAL, replace(plan, layers=layers))
    assert note.startswith("slots in RAM give way to the mapped file")
    asked = replace(USUAL, moe_slots=3)
    assert list(file_notes(asked, replace(plan, layers=layers))) == []
