"""Replaying steps, including prompts' batches, does to a policy what a running model does."""

import numpy as np
import pytest
from route_traces import skewed_routes

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.simulation.simulate import replay_optimum
from sharpi.experts.trace.trace import Prompts, Steps, run_steps

pytestmark = pytest.mark.native
LAYERS, EXPERTS, K, SLOTS = 4, 12, 2, 4


def a_run() -> Steps:
    """Returns two texts after prompts of one and of two batches, the second one continuing."""
    routes = skewed_routes(150, LAYERS, EXPERTS, K)
    counts = (np.array(each, np.int64) for each in ([20, 30], [20, 25, 5], [0, 60]))
    prompts = Prompts(routes[:50], *counts)
    return run_steps(routes[50:], np.array([60, 40]), prompts)


def settings(kind: PolicyKind) -> PolicySettings:
    return PolicySettings(kind, EXPERTS, K, (SLOTS,) * LAYERS, load_budget=2)


@pytest.mark.parametrize("kind", PolicyKind)
def test_a_whole_replay_is_its_steps_one_by_one(kind: PolicyKind) -> None:
    steps, whole, single = a_run(), NativePolicy(settings(kind)), NativePolicy(settings(kind))
    whole.replay(steps)
    single.start()
    end = np.cumsum(steps.sizes)
    for last, size, starts in zip(end, steps.sizes, steps.starts, strict=True):
        if starts:
            single.reset_sequence()
        for layer in range(LAYERS):
            batch = steps.routes[last - size : last, layer]
            if size == 1:
                single.use(layer, batch[0])
            else:
                single.use_batch(layer, batch)
        single.end_token()
    assert whole.all_counts() == single.all_counts()
    np.testing.assert_array_equal(whole.states().resident, single.states().resident)


def test_no_policy_that_waits_for_misses_beats_the_optimum() -> None:
    steps = a_run()
    best = replay_optimum(steps, EXPERTS, (SLOTS,) * LAYERS)
    for kind in (PolicyKind.SLRU, PolicyKind.LRU, PolicyKind.LFRU, PolicyKind.LEARNED_KEEP):
        policy = NativePolicy(settings(kind))
        policy.replay(steps)
        for mine, optimum in zip(policy.all_counts(), best, strict=True):
            assert mine.accesses == optimum.accesses
            assert mine.hits <= optimum.hits


def test_a_batch_uses_each_expert_once() -> None:
    routes = np.array([[[0, 1]], [[1, 0]], [[2, 1]], [[0, 3]]], np.int32)
    steps = Steps(routes, np.array([3, 1]), np.array([True, False]))
    (counts,) = replay_optimum(steps, 4, (1,))
    assert (counts.accesses, counts.hits) == (5, 1)
