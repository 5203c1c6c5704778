"""Belady's optimum against all possible choices, on traces small enough to try them."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from route_traces import skewed_routes

from sharpi.experts.simulation.simulate import replay_optimum
from sharpi.experts.trace.trace import decoded_steps

pytestmark = pytest.mark.native


@given(
    st.integers(1, 4),
    st.lists(
        st.lists(st.integers(0, 4), min_size=2, max_size=2, unique=True), min_size=1, max_size=8
    ),
)
@settings(max_examples=60, deadline=None)
def test_no_choice_of_slots_hits_more(slots: int, tokens: list[list[int]]) -> None:
    @cache
    def most_hits(position: int, resident: frozenset[int]) -> int:
        if position == len(tokens):
            return 0
        used = frozenset(tokens[position])
        there = resident | used
        kept = [
            frozenset(c) for n in range(slots + 1) for c in combinations(there, min(n, len(there)))
        ]
        return len(used & resident) + max(most_hits(position + 1, each) for each in kept)

    routes = np.array(tokens, np.int32)[:, None, :]
    counts = replay_optimum(decoded_steps(routes, np.array([len(tokens)])), 5, (slots,))[0]
    assert counts.hits == most_hits(0, frozenset())
    assert counts.accesses == 2 * len(tokens)


def test_layers_apart_and_all_resident_in_the_end() -> None:
    routes = skewed_routes(300, 2, 8, 2)
    few, all_of_them = replay_optimum(decoded_steps(routes, np.array([300])), 8, (2, 8))
    assert few.hits < all_of_them.hits
    assert all_of_them.accesses - all_of_them.hits == len(np.unique(routes[:, 1]))
