"""The reference's choice of experts, with which kernels are compared, against values by hand."""

import numpy as np
import pytest
from reference_ops import choose_experts

from sharpi.ops.interface import Router, Scoring


def chosen(logits: list[float], router: Router) -> tuple[list[int], list[float]]:
    ids, weights = choose_experts(np.array([logits], np.float32), router)
    return ids[0].tolist(), weights[0].tolist()


def test_the_sparse_mixer_weighs_an_expert_against_those_that_come_near() -> None:
    router = Router(4, 2, Scoring.SPARSE_MIXER, normalise=False)
    ids, weights = chosen([1.0, 0.99, 0.5, -2.0], router)
    assert ids == [0, 1]
    assert weights == pytest.approx([1 / (1 + np.exp(-0.01)), 1.0])


def test_the_sparse_mixer_is_sure_where_nothing_comes_near() -> None:
    router = Router(4, 2, Scoring.SPARSE_MIXER, normalise=False)
    assert chosen([0.5, 3.0, 2.0, -2.0], router) == ([1, 2], [1.0, 1.0])


@pytest.mark.parametrize(
    ("scoring", "expected"), [(Scoring.SOFTMAX, [0, 1]), (Scoring.SIGMOID, [2, 3])]
)
def test_groups_rank_by_their_best_or_by_their_two_best(
    scoring: Scoring, expected: list[int]
) -> None:
    router = Router(4, 2, scoring, num_groups=2, groups_used=1)
    ids, weights = chosen([2.0, -9.0, 1.5, 1.4], router)
    assert sorted(ids) == expected
    assert sum(weights) == pytest.approx(1.0)
