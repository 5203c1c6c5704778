"""The divergence and agreement of two engines' logits, against plain formulas."""

import numpy as np
import pytest

from sharpi.engine.measure.perplexity import KvLoss, token_losses

RNG = np.random.default_rng(4)
LOGITS, REFERENCE = RNG.standard_normal((2, 300, 11)).astype(np.float32)
TARGETS = RNG.integers(0, 11, 300).astype(np.int32)


def probabilities(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def test_losses_and_divergence() -> None:
    p, q = probabilities(REFERENCE), probabilities(LOGITS)
    assert np.allclose(token_losses(LOGITS, TARGETS), -np.log(q[np.arange(300), TARGETS]))
    loss = KvLoss().plus(LOGITS, REFERENCE, TARGETS)
    assert loss.divergence == pytest.approx((p * np.log(p / q)).sum() / 300)
    assert loss.agreement == np.mean(p.argmax(axis=1) == q.argmax(axis=1))
    expected = np.exp(-np.log(p[np.arange(300), TARGETS]).mean())
    assert loss.reference_perplexity == pytest.approx(expected)


def test_parts_add_up() -> None:
    whole = KvLoss().plus(LOGITS, REFERENCE, TARGETS)
    halves = KvLoss()
    for part in (slice(0, 100), slice(100, 300)):
        halves = halves.plus(LOGITS[part], REFERENCE[part], TARGETS[part])
    assert halves.divergence == pytest.approx(whole.divergence)
    assert (halves.agreement, halves.num_tokens) == (whole.agreement, 300)


def test_nothing_is_lost_against_itself() -> None:
    loss = KvLoss().plus(LOGITS, LOGITS, TARGETS)
    assert (loss.divergence, loss.agreement) == (0, 1)
