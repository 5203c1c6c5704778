"""Layers divided among machines: first so that all have room, then so that none waits long."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.errors import UsageError
from sharpi.tiers.layer_division import Division, LayerLoad, Machine, divide_layers, token_seconds

GB = 1 << 30
NOTHING = LayerLoad(0, 0)


def divide(
    loads: list[LayerLoad], machines: list[Machine], starts: list[int] | None = None
) -> Division:
    return divide_layers(loads, machines, starts or list(range(len(loads))), NOTHING)


def test_like_machines_take_like_parts() -> None:
    division = divide([LayerLoad(GB, GB)] * 6, [Machine(100 * GB, 10.0 * GB)] * 3)
    assert division.layers == ((0, 2), (2, 4), (4, 6))
    assert division.overflow == 0
    assert division.stage_seconds == pytest.approx((0.2, 0.2, 0.2))
    assert division.full_rate == pytest.approx(3 * division.single_rate)


def test_the_faster_machine_takes_more() -> None:
    machines = [Machine(100 * GB, 30.0 * GB), Machine(100 * GB, 10.0 * GB)]
    assert divide([LayerLoad(GB, GB)] * 8, machines).layers == ((0, 6), (6, 8))


def test_room_comes_before_speed() -> None:
    """The fast machine holds two layers only; the old one takes what would be on disk."""
    machines = [Machine(2 * GB, 100.0 * GB), Machine(64 * GB, 1.0 * GB)]
    division = divide([LayerLoad(GB, GB)] * 8, machines)
    assert division.layers == ((0, 2), (2, 8))
    assert division.overflow == 0


def test_a_gpu_beside_an_old_cpu_takes_most_layers() -> None:
    """VRAM holds four of eight layers, and three more in RAM take less than two on the old CPU."""
    gpu = Machine(64 * GB, 10.0 * GB, vram=4 * GB, vram_rate=400.0 * GB)
    old = Machine(64 * GB, 5.0 * GB)
    division = divide([LayerLoad(GB, GB)] * 8, [gpu, old])
    assert division.layers == ((0, 7), (7, 8))
    assert division.stage_seconds == pytest.approx((4 / 400 + 3 / 10, 1 / 5))
    assert divide([LayerLoad(GB, GB)] * 8, [old, gpu]).layers == ((0, 1), (1, 8))


def test_vram_counts_as_room() -> None:
    division = divide([LayerLoad(GB, GB)] * 8, [Machine(2 * GB, GB, 4 * GB, 9.0 * GB)] * 2)
    assert division.overflow == 0
    assert divide([LayerLoad(GB, GB)] * 8, [Machine(2 * GB, GB)] * 2).overflow == 4 * GB


def test_vram_has_dense_weights_before_experts() -> None:
    load = LayerLoad(10 * GB, 3 * GB, expert_bytes=8 * GB, expert_token_bytes=GB)
    machine = Machine(64 * GB, 10.0 * GB, vram=6 * GB, vram_rate=100.0 * GB)
    in_vram = 2 + 0.5  # GB of dense weights, and half of the experts
    assert token_seconds(load, machine) == pytest.approx(in_vram / 100 + 0.5 / 10)


def test_what_fits_nowhere_is_counted() -> None:
    division = divide([LayerLoad(GB, GB)] * 8, [Machine(3 * GB, GB)] * 2)
    assert division.overflow == 2 * GB


def test_the_first_machine_has_the_output_too() -> None:
    output = LayerLoad(2 * GB, 2 * GB)
    loads, machines = [LayerLoad(GB, GB)] * 6, [Machine(100 * GB, 1.0 * GB)] * 2
    assert divide_layers(loads, machines, range(6), output).layers == ((0, 2), (2, 6))


def test_layers_that_share_keys_stay_together() -> None:
    assert divide([LayerLoad(1, 1)] * 4, [Machine(9, 1.0)] * 2, [0, 3]).layers == ((0, 3), (3, 4))


def test_a_machine_gets_layers_whose_parts_it_has() -> None:
    loads, machines = [LayerLoad(GB, GB)] * 6, [Machine(100 * GB, 1.0 * GB)] * 2
    missing = [{4, 5}, {0, 1, 2, 3}]
    assert divide_layers(loads, machines, range(6), NOTHING, missing).layers == ((0, 4), (4, 6))


def test_too_many_machines_are_refused() -> None:
    with pytest.raises(UsageError, match="3 machines cannot share"):
        divide([LayerLoad(1, 1)] * 2, [Machine(9, 1.0)] * 3)


@given(
    st.lists(st.builds(LayerLoad, st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=7),
    st.lists(
        st.builds(Machine, st.integers(0, 30), st.sampled_from([1.0, 2.0, 5.0])),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
def test_no_other_division_is_better(loads: list[LayerLoad], machines: list[Machine]) -> None:
    division = divide(loads, machines)
    best = min(
        _cost(loads, machines, [0, *inner, len(loads)])
        for inner in combinations(range(1, len(loads)), len(machines) - 1)
    )
    bounds = [first for first, _ in division.layers] + [len(loads)]
    assert _cost(loads, machines, bounds) == pytest.approx(best)


def _cost(
    loads: list[LayerLoad], machines: list[Machine], bounds: list[int]
) -> tuple[float, float]:
    over, slowest = 0, 0.0
    for machine, first, end in zip(machines, bounds, bounds[1:], strict=False):
        own = loads[first:end]
        over += max(0, sum(each.num_bytes for each in own) - machine.ram)
        slowest = max(slowest, sum(each.token_bytes for each in own) / machine.read_rate)
    return over, slowest
