"""The capacity factor that would have sufficed, against a search that tries each."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sharpi.experts.stats.stats import Skew
from sharpi.ops.routed_capacity import experts_at_once

EXPERTS, USED, BATCH = 16, 2, 64


def routes_of(weights: NDArray[np.float64], tokens: int, seed: int = 0) -> NDArray[np.int32]:
    random = np.random.default_rng(seed)
    share = weights / weights.sum()
    rows = [random.choice(EXPERTS, USED, replace=False, p=share) for _ in range(tokens)]
    return np.array(rows, np.int32)


def suffices(factor: float, ids: NDArray[np.int32]) -> bool:
    """Says if every group of experts that compute together has rows for its tokens."""
    width = experts_at_once(factor, EXPERTS)
    sums = [np.isin(ids, range(e, e + width)).sum() for e in range(EXPERTS - width + 1)]
    return max(sums) <= USED * math.ceil(factor * len(ids))


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 3.0])
def test_the_least_factor(skew: float) -> None:
    ids = routes_of(np.arange(1.0, EXPERTS + 1) ** -skew, BATCH)
    found = Skew(EXPERTS, BATCH)
    found.add([ids])
    stats = found.stats
    assert stats is not None
    assert suffices(stats.capacity_factor, ids)
    below = [percent / 100 for percent in range(1, round(100 * stats.capacity_factor))]
    assert not any(suffices(factor, ids) for factor in below)
    counts = np.bincount(ids.ravel())
    assert stats.busiest_share == pytest.approx(counts.max() / counts.sum() * EXPERTS)


def test_more_skew_needs_more() -> None:
    factors = []
    for skew in (0.0, 1.0, 3.0):
        found = Skew(EXPERTS, BATCH)
        found.add([routes_of(np.arange(1.0, EXPERTS + 1) ** -skew, BATCH)])
        assert found.stats is not None
        factors.append(found.stats.capacity_factor)
    assert factors == sorted(factors)
    assert factors[0] < factors[-1]


def test_one_factor_for_all_batches() -> None:
    some = [routes_of(np.ones(EXPERTS), 150, 1), routes_of(np.arange(1.0, 17), 150, 2)]
    found = Skew(EXPERTS, BATCH)
    found.add(some)
    stats = found.stats
    assert stats is not None
    assert stats.batches == 3
    cuts = [ids[at : at + BATCH] for ids in some for at in range(0, 150, BATCH)]
    assert all(suffices(stats.capacity_factor, ids) for ids in cuts)


def test_a_short_prompt_shows_what_full_batches_need() -> None:
    ids = routes_of(np.arange(1.0, EXPERTS + 1), 32)
    factors = []
    for repeats in (1, 2):
        found = Skew(EXPERTS, BATCH)
        found.add([np.tile(ids, (repeats, 1))])
        assert found.stats is not None
        factors.append(found.stats.capacity_factor)
    assert factors[0] == pytest.approx(factors[1], abs=1 / 32)
    assert factors[0] > 0.1


def test_few_tokens_need_no_factor() -> None:
    found = Skew(EXPERTS, BATCH)
    found.add([routes_of(np.ones(EXPERTS), 8)])
    assert found.stats is None
