"""Expected speeds, computed by hand: bytes of a token over the rates of their tiers."""

import pytest
from msgspec.structs import replace
from tier_cases import GIB, MACHINE, MIB, REQUEST, model

from sharpi.hardware.info import Rates
from sharpi.tiers.plan import Speed
from sharpi.tiers.planner import plan_tiers

RATES = Rates(ram_read=10e9, disk_read=1e9, vram_read=100e9, bus=5e9)
DENSE_WEIGHTS = 24 * MIB  # four layers of 5 MiB, 4 MiB of output
EXPERTS = 4 * 2 * 3 * MIB  # two experts of 3 MiB in each layer


def speed(rates: Rates = RATES, **asked: object) -> Speed:
    request = replace(REQUEST, **asked)  # type: ignore[arg-type]
    return plan_tiers(model(), replace(MACHINE, rates=rates), request).speed


def test_everything_in_ram() -> None:
    found = speed()
    assert found.bytes_per_token == {"RAM read": DENSE_WEIGHTS + EXPERTS}
    assert found.tokens_per_second == pytest.approx(10e9 / (DENSE_WEIGHTS + EXPERTS))
    assert (found.bound, found.hit_rate) == ("RAM read", 1.0)
    assert found.assumptions == ("an expert is found in a slot as often as experts have slots",)


def test_a_quarter_in_slots() -> None:
    found = speed(moe_slots=2)
    missed = EXPERTS * 3 // 4
    assert found.bytes_per_token == {"RAM read": DENSE_WEIGHTS + EXPERTS, "disk read": missed}
    seconds = (DENSE_WEIGHTS + EXPERTS) / 10e9 + missed / 1e9
    assert found.tokens_per_second == pytest.approx(1 / seconds)
    assert (found.bound, found.hit_rate) == ("disk read", 0.25)


def test_everything_on_the_gpu() -> None:
    found = speed(vram=2 * GIB)
    assert found.bytes_per_token == {"VRAM read": DENSE_WEIGHTS + EXPERTS}
    assert found.bound == "VRAM read"


@pytest.mark.parametrize(("bus", "bound"), [(5e9, "RAM read"), (12e9, "bus")])
def test_misses_of_the_gpu_take_the_faster_mode(bus: float, bound: str) -> None:
    found = speed(replace(RATES, bus=bus), vram=2 * GIB, moe_slots=2)
    assert found.bytes_per_token[bound] == EXPERTS * 3 // 4
    assert found.bytes_per_token["VRAM read"] == DENSE_WEIGHTS + EXPERTS // 4
    assert found.bound == bound


@pytest.mark.parametrize(
    ("asked", "source", "words"),
    [
        ({"miss": "cpu"}, "RAM read", "are computed by the CPU"),
        ({"miss": "load"}, "bus", "cross the bus"),
        ({"miss": "stream"}, "bus", "cross the bus"),
        ({"miss": "auto"}, "RAM read", "are computed by the CPU"),
        ({"cpu_moe": True}, "RAM read", "are computed by the CPU"),
    ],
)
def test_the_miss_mode_that_was_asked_for(
    asked: dict[str, object], source: str, words: str
) -> None:
    found = speed(RATES, vram=2 * GIB, **({"moe_slots": 2} | asked))
    missed = EXPERTS if "cpu_moe" in asked else EXPERTS * 3 // 4
    assert found.bytes_per_token[source] == missed
    assert found.assumptions[-1] == f"experts that are not on the GPU {words}"


def test_hits_and_misses_of_a_layer_are_served_at_the_same_time() -> None:
    found = speed(vram=2 * GIB, moe_slots=2)
    missed = EXPERTS * 3 // 4
    assert found.tokens_per_second == pytest.approx(1 / (DENSE_WEIGHTS / 100e9 + missed / 10e9))


def test_what_is_on_disk_is_in_neither_memory() -> None:
    """One of eight experts is on the GPU and three in RAM, so four come from disk."""
    request = replace(REQUEST, vram=2 * GIB, moe_slots=1, ram=56 * MIB)
    plan = plan_tiers(model(), replace(MACHINE, rates=RATES), request)
    assert (plan.vram_slots, plan.ram_slots) == ((1,) * 4, (3,) * 4)
    found = plan.speed.bytes_per_token
    assert found["disk read"] == EXPERTS // 2
    assert found["RAM read"] == EXPERTS * 7 // 8
    assert "bus" not in found


def test_what_was_not_measured_is_said() -> None:
    found = speed(Rates(ram_read=10e9), moe_slots=2)
    assert "disk read of 1.5 GB/s: not measured" in found.assumptions
    assert not any("RAM read" in each for each in found.assumptions)
