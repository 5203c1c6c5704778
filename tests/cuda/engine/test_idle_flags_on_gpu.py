"""Flags that a GPU does otherwise are named at load, with the slots of every tier."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cpu_device import CpuDevice

from sharpi.config import ExpertConfig, GivenFlags, RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.resources import demo_model

pytestmark = pytest.mark.native
MIB = 1 << 20
TWO_TIERS = {"vram": 523 * MIB}
THREE_TIERS = {"vram": 523 * MIB, "ram": 13 * MIB}
Notes = Callable[..., list[str]]


@pytest.fixture
def notes() -> Iterator[Notes]:
    engines: list[Engine] = []

    def load(flags: str, experts: ExpertConfig, **options: Any) -> list[str]:
        names = tuple((name, "--" + name.replace("_", "-")) for name in flags.split())
        config = RunConfig(
            model=demo_model(),
            device="cuda",
            context_size=128,
            batch_size=48,
            experts=experts,
            given=GivenFlags("run", names),
            **options,
        )
        engines.append(load_engine(config, open_device=lambda _: CpuDevice(check=False)))
        return [note for note in engines[-1].notes if "--" in note or "slot" in note]

    yield load
    for engine in engines:
        engine.close()


def test_vram_and_ram(notes: Notes) -> None:
    found = notes(
        "moe_policy moe_predictor moe_load_budget",
        ExpertConfig(policy="learned", predictor="last-token", load_budget=3.0),
        **TWO_TIERS,
    )
    assert "experts have a slot in VRAM, the others are in RAM" in found[0]
    assert "recommended" in found[0]
    assert found[-3:] == [
        "--moe-policy has no effect: a GPU only loads what is missed, so learned-keep is used",
        "--moe-predictor has no effect: on a GPU the predictor is router",
        "--moe-load-budget has no effect: learned-keep loads whatever is missed",
    ]


def test_what_a_gpu_does_has_no_note(notes: Notes) -> None:
    experts = ExpertConfig(policy="lfu", predictor="router", warm_pin=1, miss="load")
    found = notes("moe_policy moe_predictor moe_warmpin moe_miss", experts, **TWO_TIERS)
    assert not any("no effect" in note for note in found)


def test_vram_ram_and_disk(notes: Notes) -> None:
    found = notes(
        "moe_policy moe_predictor moe_miss",
        ExpertConfig(policy="lfu", predictor="last-token", miss="load"),
        **THREE_TIERS,
    )
    assert any("a slot in VRAM, the others are in RAM or on disk" in note for note in found)
    assert any("a slot in RAM, the others are read from disk" in note for note in found)
    assert [note.partition(" has no effect: ")[0] for note in found if "no effect" in note] == [
        "--moe-predictor",
        "--moe-miss",
    ]


def test_vram_ram_and_disk_with_a_policy_that_prefetches(notes: Notes) -> None:
    found = notes(
        "moe_policy moe_warmpin moe_resident",
        ExpertConfig(policy="learned", warm_pin=1),
        **THREE_TIERS,
    )
    assert found[-1] == (
        "--moe-policy has no effect: a GPU only loads what is missed, so learned-keep is used"
    )


def test_everything_in_vram(notes: Notes) -> None:
    found = notes("moe_policy", ExpertConfig(policy="lfu"))
    assert found[0].startswith("all 16 experts of each layer have a slot in VRAM")
    assert found[1].startswith("--moe-policy has no effect: the GPU has all experts")


def test_experts_that_the_cpu_computes(notes: Notes) -> None:
    found = notes("moe_policy cpu_moe", ExpertConfig(policy="lfu"), cpu_moe=True)
    assert any(note.startswith("--moe-policy has no effect: ") for note in found)
    assert not any(note.startswith("--cpu-moe") for note in found)
