"""The request that combines the user's options with the engine's decisions."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tier_cases import GIB, MACHINE

from sharpi.config import Device, RunConfig
from sharpi.tiers.request import TierRequest, tier_request

CONFIG = RunConfig(model=Path("m.gguf"))
WITH_GPU = replace(MACHINE, free_vram=10 * GIB)


def asked(config: RunConfig) -> TierRequest:
    return tier_request(
        config, WITH_GPU, context_size=99, batch_size=7, rounding="int16", num_threads=3
    )


def test_defaults_leave_the_choice_to_the_planner() -> None:
    assert asked(replace(CONFIG, device="cpu")) == TierRequest(99, 7, "int16", 3)


def test_everything_is_handed_on() -> None:
    config = replace(CONFIG, vram=6, ram=5, gpu_layers=2, moe_slots=4, cpu_moe=True, num_cpu_moe=1)
    expected = TierRequest(
        99, 7, "int16", 3, vram=6, ram=5, gpu_layers=2, moe_slots=4, cpu_moe=True, num_cpu_moe=1
    )
    assert asked(config) == expected


@pytest.mark.parametrize(
    ("device", "vram", "expected"),
    [
        ("auto", None, 10 * GIB),
        ("auto", GIB, GIB),
        ("auto", 20 * GIB, 10 * GIB),
        ("cpu", None, None),
        ("cpu", GIB, None),
        ("cuda", None, 10 * GIB),
        ("cuda", GIB, GIB),
    ],
)
def test_memory_of_the_gpu(device: Device, vram: int | None, expected: int | None) -> None:
    assert asked(replace(CONFIG, device=device, vram=vram)).vram == expected


def test_a_gpu_that_is_not_there_may_be_planned_for() -> None:
    request = tier_request(
        replace(CONFIG, vram=GIB), MACHINE,
        context_size=99, batch_size=7, rounding="int16", num_threads=3,
    )  # fmt: skip
    assert request.vram == GIB
