"""Expected speeds, hit rates and what drafts may gain, computed by hand from bytes and rates."""

from itertools import pairwise

import pytest
from msgspec.structs import replace
from tier_cases import GIB, MACHINE, MIB, model, plan_of

from sharpi.hardware.info import Rates
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Speed
from sharpi.tiers.speed import CURVE, cumulative_shares, curve, hit_rate

RATES = Rates(ram_read=10e9, disk_read=1e9, lone_read=0.5e9, vram_read=150e9, bus=6e9)
DENSE_WEIGHTS = 24 * MIB  # four layers of 5 MiB, 4 MiB of output
EXPERTS = 4 * 2 * 3 * MIB  # two experts of 3 MiB in each layer
QUARTER = hit_rate(2, 8)  # two of eight experts have slots
STEP = 0.1e-3 + 4 * 12e-6  # seconds of a step of four layers, beside its reads


def speed(rates: Rates = RATES, **asked: object) -> Speed:
    return plan_of(model(), replace(MACHINE, rates=rates), **asked).speed


def ends(seconds: float) -> tuple[float, float]:
    """The ends of the range of tokens per second, whose upper one is twice the lower one."""
    return 0.625 / seconds, 1.25 / seconds


def test_everything_in_ram() -> None:
    found = speed()
    assert found.bytes_per_token == {"RAM read": DENSE_WEIGHTS + EXPERTS}
    at_rate = (DENSE_WEIGHTS + EXPERTS) / 10e9
    range_found = found.least_tokens_per_second, found.tokens_per_second
    assert range_found == pytest.approx(ends(at_rate + STEP))
    assert (found.bound, found.hit_rate) == ("RAM read", 1.0)
    assert (found.is_measured, found.is_hit_rate_known) == (True, True)
    assert found.assumptions == ()


def test_a_quarter_in_slots() -> None:
    found = speed(moe_slots=2)
    missed = round(EXPERTS * (1 - 0.728))
    assert found.bytes_per_token == {"RAM read": DENSE_WEIGHTS + EXPERTS, "disk read": missed}
    assert found.hit_rate == pytest.approx(0.728)
    assert not found.is_hit_rate_known
    seconds = (DENSE_WEIGHTS + EXPERTS) / 10e9 + missed / 0.5e9  # less than one miss at a time
    range_found = found.least_tokens_per_second, found.tokens_per_second
    assert range_found == pytest.approx(ends(seconds + STEP))
    assert found.bound == "disk read"
    assert "GPT-OSS" in found.assumptions[0]


def test_more_slots_are_never_expected_to_be_slower() -> None:
    for misses in ({}, {0.25: 0.2}, {0.25: 2.0, 0.75: 0.1}):
        facts = replace(model(), known_misses=misses)
        found = [
            plan_of(facts, replace(MACHINE, rates=RATES), moe_slots=slots).speed
            for slots in range(1, 9)
        ]
        rates = [each.tokens_per_second for each in found]
        assert rates == sorted(rates)
        assert rates[-1] == pytest.approx(speed().tokens_per_second)
        assert all(each.is_hit_rate_known for each in found) == bool(misses)


def test_a_profile_says_what_is_found() -> None:
    facts = replace(model(), use_shares=((0.5, 0.9, 0.95, 1.0, 1.0, 1.0, 1.0, 1.0),) * 4)
    found = plan_of(facts, replace(MACHINE, rates=RATES), moe_slots=2).speed
    assert found.hit_rate == pytest.approx(0.9)
    assert found.bytes_per_token["disk read"] == pytest.approx(0.1 * EXPERTS, abs=1)
    assert found.assumptions == ("hit rates follow from the profile's uses",)


def test_everything_on_the_gpu() -> None:
    found = speed(vram=2 * GIB)
    assert found.bytes_per_token == {"VRAM read": DENSE_WEIGHTS + EXPERTS}
    assert (found.bound, found.hit_rate) == ("VRAM read", 1.0)


def test_a_gpu_without_slots_has_no_hits() -> None:
    plan = plan_of(model(), replace(MACHINE, rates=RATES), vram=RESERVE_BYTES + 30 * MIB)
    assert set(plan.vram_slots) == {0}
    assert plan.first_gpu_layer < 4
    assert plan.speed.hit_rate == 0.0


@pytest.mark.parametrize(("bus", "bound"), [(6e9, "RAM read"), (14.4e9, "bus")])
def test_misses_of_the_gpu_take_the_faster_mode(bus: float, bound: str) -> None:
    found = speed(replace(RATES, bus=bus), vram=2 * GIB, moe_slots=2)
    missed = (1 - QUARTER) * EXPERTS
    assert found.bytes_per_token[bound] == round(missed)
    assert found.bytes_per_token["VRAM read"] == round(DENSE_WEIGHTS + EXPERTS - missed)
    assert found.bound == bound


@pytest.mark.parametrize(
    ("asked", "source", "words"),
    [
        ({"miss": "cpu"}, "RAM read", "are computed by the CPU"),
        ({"miss": "bus"}, "bus", "cross the bus"),
        ({"miss": "auto"}, "RAM read", "are computed by the CPU"),
        ({"cpu_moe": True}, "RAM read", "are computed by the CPU"),
    ],
)
def test_the_miss_mode_that_was_asked_for(
    asked: dict[str, object], source: str, words: str
) -> None:
    found = speed(RATES, vram=2 * GIB, **({"moe_slots": 2} | asked))
    missed = EXPERTS if "cpu_moe" in asked else round((1 - QUARTER) * EXPERTS)
    assert found.bytes_per_token[source] == missed
    assert found.assumptions[-1] == f"experts that are not on the GPU {words}"


def test_what_is_on_disk_is_in_neither_memory() -> None:
    """One of eight experts is on the GPU and three in RAM, so four come from disk."""
    asked = {"vram": 2 * GIB, "moe_slots": 1, "ram": 56 * MIB}
    plan = plan_of(model(), replace(MACHINE, rates=RATES), **asked)
    assert (plan.vram_slots, plan.ram_slots) == ((1,) * 4, (3,) * 4)
    found = plan.speed.bytes_per_token
    assert found["disk read"] == round(EXPERTS * (1 - curve(0.5)))
    assert found["RAM read"] == round(EXPERTS * (1 - curve(0.125)))
    assert "bus" not in found


def test_what_was_not_measured_is_said() -> None:
    found = speed(Rates(ram_read=10e9), moe_slots=2)
    assert "disk read of 1.5 GB/s: not measured" in found.assumptions
    assert not any("RAM read" in each for each in found.assumptions)


def test_the_curve_is_that_of_the_recorded_routes() -> None:
    assert [curve(share) for share, _ in CURVE] == [rate for _, rate in CURVE]
    assert curve(0.28125) == pytest.approx(0.728 + (0.847 - 0.728) / 4)


@pytest.mark.parametrize("misses", [{}, {0.1: 0.25, 0.5: 0.4, 0.6: 1.2}])
def test_hits_grow_with_the_slots(misses: dict[float, float]) -> None:
    found = [hit_rate(slots, 64, (), misses) for slots in range(65)]
    assert all(after >= before - 1e-12 for before, after in pairwise(found))
    assert (found[0], found[-1]) == (0, 1)


def test_earlier_runs_replace_the_curve() -> None:
    known = {0.125: 0.25, 0.5: 0.4}
    for slots, ratio in ((8, 0.25), (16, 0.25), (64, 0.4), (96, 0.4)):
        expected = 1 - ratio * (1 - curve(slots / 128))
        assert hit_rate(slots, 128, (), known) == pytest.approx(expected)
    between = hit_rate(32, 128, (), known)
    assert hit_rate(16, 128, (), known) < between < hit_rate(64, 128, (), known)
    assert hit_rate(1, 128, (), {0.5: 9.0}) == 0.0


def test_a_profile_replaces_the_curve() -> None:
    shares = cumulative_shares([10, 60, 0, 30])
    assert shares == (0.6, 0.9, 1.0, 1.0)
    assert hit_rate(2, 4, shares) == 0.9
    assert cumulative_shares([0, 0]) == ()
