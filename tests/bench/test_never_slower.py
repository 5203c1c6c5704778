"""The gate "never slower than not caching": its results, its emulated costs, and a small run."""

import numpy as np
import pytest
from experts.emulation import Costs, EmulatedChoice, EmulatedPages, EmulatedTokens, make_routes
from experts.never_slower import (
    DEFAULT,
    SETTLED,
    emulate,
    emulated_settings,
    judge,
    seconds_per_token,
    table,
)

from sharpi.experts.policy_settings import PolicyKind, PolicySettings

pytestmark = pytest.mark.native


def test_the_default_may_be_two_percent_behind_the_best() -> None:
    close = judge("here", {DEFAULT: 1.019, "lru": 1.0, "static": 3.0})
    behind = judge("here", {DEFAULT: 1.03, "lru": 1.0, "static": 3.0})
    assert (close.best, close.passes, behind.passes) == ("lru", True, False)
    assert "SLOWER" in table({"here": {DEFAULT: 2.0, "lru": 1.0}})


def test_missed_experts_are_waited_for_and_hits_are_not() -> None:
    settings = PolicySettings(PolicyKind.LRU, 4, 1, (2,))
    run = EmulatedTokens(settings, Costs(layer=1.0, read=10.0, decisions=0.5))
    run.run(np.array([[[0]], [[1]], [[0]], [[2]], [[1]]], np.int32))
    run.close()
    assert run.seconds == [11, 11, 1, 11, 11]  # lru has no decisions to pay for


@pytest.mark.parametrize(("read", "wait"), [(1.0, 0.0), (2.5, 0.5)])
def test_what_is_read_early_is_waited_for_if_it_is_late(read: float, wait: float) -> None:
    # Expert 3 of layer 2 is loaded while layers 0 and 1 compute for a second each.
    routes = np.tile(np.array([[0], [1], [3]], np.int32), (1, 1, 1))
    settings = PolicySettings(PolicyKind.LRU, 4, 1, (4, 4, 4))
    run = EmulatedTokens(settings, Costs(layer=1.0, read=read))
    run.run(routes)
    run._resident.discard((2, 3))
    run._pending[2, 3] = read
    run._resident.add((2, 3))
    run.run(routes)
    run.close()
    assert run.seconds[1] == pytest.approx(3.0 + wait)


def test_prefetching_that_a_slow_disk_has_no_room_for_is_switched_off() -> None:
    routes = make_routes("uniform", SETTLED + 200, 8, 16, 2)
    slots = (4,) * 8
    settings = PolicySettings(PolicyKind.LEARNED_PREFETCH, 16, 2, slots, load_budget=2.0)
    ratios = {}
    for read in (0.01e-3, 5e-3):
        run = EmulatedTokens(settings, Costs(0.2e-3, read, 0.0, prefetch_decisions=0.1e-3))
        run.run(routes)
        assert run.trials.prefetch is not None
        ratios[read] = run.trials.prefetch.ratio(True, False)
        run.close()
    assert ratios[0.01e-3] > 1.02  # deciding costs more than it saves


def test_a_policy_that_costs_more_than_it_saves_gives_way_to_lru() -> None:
    routes = make_routes("uniform", SETTLED + 50, 6, 16, 2)
    settings = PolicySettings(PolicyKind.LEARNED_PREFETCH, 16, 2, (8,) * 6, load_budget=1.0)
    ends = {}
    for decisions in (0.0, 0.5e-3):
        run = EmulatedTokens(settings, Costs(0.2e-3, 0.1e-3, decisions))
        run.run(routes)
        ends[decisions] = run.trials.learns
        run.close()
    assert ends == {0.0: True, 0.5e-3: False}


@pytest.mark.slow
def test_the_default_is_not_slower_on_emulated_tiers() -> None:
    for where, ways in emulate([0.25], tokens=700):
        assert judge(where, ways).passes, (where, ways)


def test_all_experts_in_slots_cost_no_reads() -> None:
    routes = make_routes("skewed", SETTLED + 50, 12, 32, 4)
    everything = seconds_per_token(PolicyKind.LEARNED_PREFETCH, 32, routes, Costs(1e-3, 1.0))
    assert everything == pytest.approx(12e-3, rel=0.2)


DISK = Costs(0.6e-3, 1.5e-3, 20e-6, 30e-6)


def times(kind: str, slots: int) -> tuple[float, float, EmulatedChoice]:
    """Returns the seconds of 2,000 tokens with slots, and with trials of the file; and the run."""
    routes = make_routes(kind, 2000, 12, 32, 4)
    settings = emulated_settings(PolicyKind.LEARNED_PREFETCH, slots)
    alone, choice = EmulatedTokens(settings, DISK), EmulatedChoice(settings, DISK)
    for run in (alone, choice):
        run.run(routes)
        run.close()
    return sum(alone.seconds), sum(choice.seconds), choice


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "gain"), [(24, 0.1), (29, 0.02)])
def test_slots_that_lose_give_way_to_the_mapped_file_within_200_tokens(
    slots: int, gain: float
) -> None:
    with_slots, chosen, run = times("uneven", slots)
    assert chosen < (1 - gain) * with_slots
    assert len(run.left) == 1
    assert run.left[0] <= 200
    assert not run.returned


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "slots"), [("uniform", 8), ("skewed", 24)])
def test_trying_the_mapped_file_costs_at_most_2_percent_of_2000_tokens(
    kind: str, slots: int
) -> None:
    with_slots, chosen, _ = times(kind, slots)
    assert chosen <= 1.02 * with_slots


def test_slots_return_with_the_most_used_experts_where_the_file_becomes_slow() -> None:
    settings = emulated_settings(PolicyKind.LEARNED_PREFETCH, 24)
    run = EmulatedChoice(settings, DISK)
    run.run(make_routes("uneven", 600, 12, 32, 4))
    assert (len(run.left), len(run.returned)) == (1, 0)
    run.run(make_routes("uniform", 700, 12, 32, 4))
    run.close()
    assert len(run.returned) == 1
    assert run.returned[0] < 600 + 3 * 256


def test_pages_leave_the_emulated_page_cache_in_the_order_of_their_use() -> None:
    settings = PolicySettings(PolicyKind.LRU, 4, 1, (5,))  # room for four fifths
    pages = EmulatedPages(settings, Costs(layer=1.0, read=10.0))
    faults = [pages.token([[expert]])[1] for expert in (0, 1, 2, 3, 0, 4, 0, 1)]
    assert faults == [1, 1, 1, 1, 0, 1, 0, 1]
    assert pages.token([[1]]) == (1.0, 0)
    assert pages.token([[2]]) == (21.0, 1)
