"""The simulation of barriers, against cases that can be computed by hand."""

import numpy as np
import pytest
from cpu import barriers
from cpu.barriers import barrier_seconds, count_barriers, counted, groups, one_counter

from sharpi.resources import demo_model

NEAR, FAR = 40.0, 100.0


def test_threads_that_arrive_at_once_take_turns() -> None:
    assert counted(np.zeros(5), 10.0) == 50.0


def test_threads_that_arrive_apart_do_not_wait_for_each_other() -> None:
    assert counted(np.array([0.0, 100.0, 200.0]), 10.0) == 210.0


def test_one_group_is_one_counter() -> None:
    arrivals = np.array([0.0, 3.0, 500.0])
    assert one_counter(arrivals, NEAR, FAR) == groups(arrivals, NEAR, FAR)
    assert one_counter(arrivals, NEAR, FAR) == NEAR + NEAR * 1.25


def test_groups_of_eight_by_hand() -> None:
    counting = 8 * NEAR + 8 * FAR
    assert groups(np.zeros(64), NEAR, FAR) == counting + FAR + NEAR * 2.5
    assert one_counter(np.zeros(64), NEAR, FAR) == 64 * FAR + FAR * (1 + 62 * 0.25)


@pytest.mark.parametrize("spread", [0.0, 1e-6])
def test_groups_are_never_slower(spread: float) -> None:
    for threads in (8, 16, 32, 64):
        flat, grouped = barrier_seconds(threads, spread, NEAR * 1e-9, FAR * 1e-9)
        assert grouped <= flat


def test_a_layer_has_few_barriers() -> None:
    count, num_bytes = count_barriers(demo_model())
    assert 0 < count <= 6 * 6 + 2  # 6 layers
    assert num_bytes > 1 << 20
    assert set(barriers.READ_RATES) == {8, 16, 32, 64}
