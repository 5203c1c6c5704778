"""The learned policy predicts from combinations of experts, of which each alone says nothing."""

import numpy as np
import pytest
from reference_learned_contexts import LearnedContexts, num_rows

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.trace.trace import decoded_steps

pytestmark = pytest.mark.native
EXPERTS, LAYERS, K = 8, 3, 2


def test_a_sum_of_two_experts_is_predicted() -> None:
    random = np.random.default_rng(1)
    pairs = np.array([random.permutation(EXPERTS)[:K] for _ in range(4000)])
    # Layer 2 uses the sum of the experts of layer 0, and another one: neither tells it alone.
    total = pairs.sum(axis=1) % EXPERTS
    last = np.stack([total, (total + 3) % EXPERTS], axis=1)
    noise = np.array([random.permutation(EXPERTS)[:K] for _ in pairs])
    routes = np.ascontiguousarray(np.stack([pairs, noise, last], axis=1), np.int32)
    policy = NativePolicy(
        PolicySettings(
            PolicyKind.LEARNED_PREFETCH, EXPERTS, K, (EXPERTS, EXPERTS, K), load_budget=K
        )
    )
    policy.replay(decoded_steps(routes, np.array([len(routes)])))
    hit_rates = [each.hits / each.accesses for each in policy.all_counts()]
    policy.close()
    # Without the combinations: 0.25. Prefetches may hardly read more than slru, which limits it.
    assert hit_rates[2] > 0.65


def test_a_layers_contexts_are_of_what_is_known_then() -> None:
    contexts = LearnedContexts(range(6), EXPERTS, first_row=100, ahead=2)
    present = {layer: [layer % EXPERTS, 7] for layer in range(6)}
    known = {layer: [3, layer % EXPERTS] for layer in range(3)}
    rows = contexts.rows(4, present, known)
    later = known | {3: [0, 1], 4: [1, 2], 5: [2, 3]}
    assert rows == contexts.rows(4, present, later)
    assert all(100 <= row < 100 + num_rows(EXPERTS) for row in rows)
    assert contexts.rows(4, present, known | {0: [5, 6]})[0] != rows[0]
    assert contexts.rows(4, present, known | {2: [5, 6]})[1:] != rows[1:]


def test_a_layer_whose_own_route_is_known_has_no_key_twice() -> None:
    contexts = LearnedContexts(range(6), EXPERTS, first_row=100, ahead=0)
    newest = {layer: [layer % EXPERTS, 7] for layer in range(6)}
    rows = contexts.rows(4, newest, newest)
    assert len(rows) == len(set(rows)) == 5
    for layer, changed in ((0, 3), (1, 1), (3, 1), (4, 3), (5, 0)):
        others = contexts.rows(4, newest | {layer: [5, 6]}, newest | {layer: [5, 6]})
        assert sum(row != other for row, other in zip(rows, others, strict=True)) == changed


@pytest.mark.parametrize("num_experts", [2, 8, 32, 128, 512])
def test_a_table_stays_within_a_megabyte(num_experts: int) -> None:
    rows = num_rows(num_experts)
    assert rows * num_experts * 4 <= 1 << 20
    assert rows & (rows - 1) == 0
