"""The memory of a learned policy's maps is what the planner counts."""

import numpy as np
import pytest
import reference_learned_contexts
from reference_learned import Learned
from reference_learned_map import LearnedMap

from sharpi.experts.policy_choice import learned_bytes, num_hashed_rows
from sharpi.experts.policy_settings import PolicyKind, PolicySettings


def bytes_of(learned_map: LearnedMap) -> int:
    """The bytes of a map's arrays of 4-byte numbers."""
    recent = learned_map._recent
    arrays = [*vars(learned_map).values(), *(vars(recent).values() if recent else ())]
    return 4 * sum(each.size for each in arrays if isinstance(each, np.ndarray))


@pytest.mark.parametrize("num_experts", [16, 32, 64, 128])
@pytest.mark.parametrize("kind", [kind for kind in PolicyKind if kind.is_learned])
def test_the_tables_of_the_reference(kind: PolicyKind, num_experts: int) -> None:
    policy = Learned(PolicySettings(kind, num_experts, 4, (4,)))
    held = sum(map(bytes_of, (*policy._maps, *policy._within._maps)))
    assert held <= learned_bytes(kind, num_experts) <= 1.02 * held + 4096


def test_policies_that_do_not_learn_take_nothing() -> None:
    assert not any(learned_bytes(kind, 64) for kind in PolicyKind if not kind.is_learned)


@pytest.mark.parametrize("num_experts", [1, 16, 32, 33, 128, 512])
def test_the_rows_of_combinations(num_experts: int) -> None:
    assert num_hashed_rows(num_experts) == reference_learned_contexts.num_rows(num_experts)
