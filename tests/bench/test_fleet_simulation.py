"""The simulation of many machines agrees with the closed forms."""

import random
from itertools import pairwise

import pytest

pytest.importorskip("cluster.several_machines", reason="it is part of a checkout")
from cluster.fleet_simulation import (
    Failures,
    Pipeline,
    Times,
    fleet,
    predicted,
    predicted_availability,
    simulated,
    simulated_availability,
)

MEASURED = Times(fixed=0.0128, for_each=0.022, hop=0.0004)
FAR = Times(fixed=0.0128, for_each=0.022, hop=0.03)  # over the internet


@pytest.mark.slow
@pytest.mark.parametrize("times", [MEASURED, FAR, Times(0.01, 0.0, 0.0)])
@pytest.mark.parametrize(
    "own",
    [
        Pipeline(1, 1, 1),
        Pipeline(1, 3, 2),
        Pipeline(2, 1, 1),
        Pipeline(2, 2, 4),
        Pipeline(8, 3, 1),
        Pipeline(8, 8, 2),
        Pipeline(8, 20, 1),
        Pipeline(40, 50, 4),
    ],
)
def test_speed_is_that_of_the_closed_form(times: Times, own: Pipeline) -> None:
    expected, found = predicted(times, own), simulated(times, own, rounds=40)
    assert found.tokens_per_second == pytest.approx(expected.tokens_per_second, rel=1e-6)
    assert found.token_seconds == pytest.approx(expected.token_seconds, rel=1e-6)


@pytest.mark.slow
def test_more_groups_hide_the_hops_up_to_the_busiest_machine() -> None:
    rates = [simulated(FAR, Pipeline(4, n, 1), 40).tokens_per_second for n in range(1, 40)]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(rates))
    assert rates[-1] == pytest.approx(4 / FAR.step(1))  # each machine has a quarter of the layers


@pytest.mark.parametrize("depth", [1, 2, 16])
def test_availability_is_that_of_the_closed_form(depth: int) -> None:
    failures = Failures(between=10_000.0, reload=60.0)
    found = simulated_availability(depth, failures, 2e8 / depth, random.Random(3))
    assert 1 - found == pytest.approx(1 - predicted_availability(depth, failures), rel=0.05)


def test_a_fleet_is_its_pipelines() -> None:
    never = Failures(between=1e12, reload=60.0)
    own = Pipeline(8, 8, 1)
    count, speed, part = fleet(1000, MEASURED, own, never, random.Random(1))
    assert (count, part) == (125, pytest.approx(1.0))
    assert speed.tokens_per_second == pytest.approx(
        125 * predicted(MEASURED, own).tokens_per_second, rel=1e-6
    )
