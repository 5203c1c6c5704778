"""Prefetches that save no misses stop by counts alone, return once they do, and read little."""

import numpy as np
import pytest
from numpy.typing import NDArray
from route_traces import skewed_routes

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.trace.trace import decoded_steps

pytestmark = pytest.mark.native
LAYERS, EXPERTS, K, BUDGET = 6, 48, 4, 3.0


def uniform(tokens: int) -> NDArray[np.int32]:
    """Returns routes that nothing predicts, (tokens, layers, k)."""
    draws = np.random.default_rng(2).random((tokens, LAYERS, EXPERTS))
    return np.argsort(draws, axis=2)[:, :, :K].astype(np.int32)


def cyclic(tokens: int) -> NDArray[np.int32]:
    """Returns routes that repeat every 12 tokens, through all experts of each layer."""
    order = np.random.default_rng(3).permuted(np.tile(np.arange(EXPERTS), (LAYERS, 1)), axis=1)
    cycle = order.reshape(LAYERS, -1, K).transpose(1, 0, 2)
    return np.ascontiguousarray(np.resize(cycle, (tokens, LAYERS, K)), np.int32)


def early_loads(slots: int, *parts: NDArray[np.int32]) -> list[float]:
    """Returns the early loads per token in the last 300 tokens of each part."""
    policy = NativePolicy(
        PolicySettings(
            PolicyKind.LEARNED_PREFETCH, EXPERTS, K, (slots,) * LAYERS, load_budget=BUDGET
        )
    )
    found = []
    for part in parts:
        for some in (part[:-300], part[-300:]):
            before = sum(counts.early_loads for counts in policy.all_counts())
            policy.replay(decoded_steps(np.ascontiguousarray(some), np.array([len(some)])))
        found.append((sum(counts.early_loads for counts in policy.all_counts()) - before) / 300)
    policy.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("slots", [12, 24, 43])  # 43: most are used at some time, but save nothing
def test_prefetches_that_save_nothing_stop(slots: int) -> None:
    (unpredictable,) = early_loads(slots, uniform(2000))
    assert 0 < unpredictable < BUDGET / 3


def test_prefetches_that_are_used_stay_and_return() -> None:
    first, after = early_loads(12, cyclic(1500), np.concatenate((uniform(1500), cyclic(3000))))
    assert first > 0.8 * BUDGET
    assert after > 0.8 * BUDGET


def reads(kind: PolicyKind, slots: int, routes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns the sums of the experts read up to each token, (tokens + 1,)."""
    policy = NativePolicy(PolicySettings(kind, EXPERTS, K, (slots,) * LAYERS, load_budget=BUDGET))
    sums = [0]
    for token in routes:
        for layer, route in enumerate(token):
            policy.use(layer, route)
        policy.end_token()
        counts = policy.all_counts()
        sums.append(sum(each.accesses - each.hits + each.early_loads for each in counts))
    policy.close()
    return np.array(sums)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [6, 12, 24, 36])
def test_no_window_reads_a_tenth_more_than_slru_from_the_first_token_on(slots: int) -> None:
    mixed = cyclic(400)
    is_random = np.random.default_rng(5).random((400, LAYERS)) < 0.6
    mixed[is_random] = uniform(400)[is_random]
    for routes in (skewed_routes(400, LAYERS, EXPERTS, K), uniform(400), mixed):
        own, of_slru = (
            (sums := reads(kind, slots, routes))[64:] - sums[:-64]
            for kind in (PolicyKind.LEARNED_PREFETCH, PolicyKind.SLRU)
        )
        # Where little is read, two experts of each layer may be more than a tenth.
        assert (own <= 1.1 * of_slru + 2 * LAYERS).all()
