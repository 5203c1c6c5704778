"""Recent uses: counts that decay, with a weight per expert that follows the error."""

import numpy as np
import pytest
from reference_recent_uses import RecentUses


def scores_of(uses: RecentUses) -> list[float]:
    scores = np.zeros(3, np.float32)
    uses.add_to(scores)
    return scores.tolist()


def test_counts_are_worth_nothing_at_first() -> None:
    uses = RecentUses(3)
    uses.count([0, 2])
    assert scores_of(uses) == [0, 0, 0]


def test_weights_learn_from_the_counts_before_the_last_token() -> None:
    uses = RecentUses(3)
    uses.count([0])
    uses.follow(np.ones(3, np.float32))
    assert scores_of(uses) == [0, 0, 0]  # nothing had been counted before
    uses.count([1])
    uses.follow(np.ones(3, np.float32))
    # Two weights of 0.01 * (0.4, 0.1), and of expert 0 what is left of (0.4, 0.1) after one token.
    worth = 0.01 * (0.4 * 0.24 + 0.1 * 0.09)
    np.testing.assert_allclose(scores_of(uses), [worth, 0, 0], rtol=1e-6)


@pytest.mark.slow
def test_an_expert_that_returns_every_third_token_is_foreseen() -> None:
    uses, score = RecentUses(3), np.zeros(3, np.float32)
    for token in range(30_000):
        uses.count([token % 3])
        if token:
            uses.follow(np.float32(np.arange(3) == token % 3) - score)
        score = np.zeros(3, np.float32)
        uses.add_to(score)
    assert int(np.argmax(score)) == 30_000 % 3
