"""The filters of candidates, against their plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.sampling.sampler import candidates, min_p, softmax, top_k, top_p
from sharpi.settings import SamplingParams

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=60).map(
    lambda x: np.array(x, np.float32)
)


@given(LOGITS, st.integers(1, 70))
def test_top_k_is_the_head_of_the_stable_order(logits: np.ndarray, k: int) -> None:
    assert top_k(logits, k).tolist() == np.argsort(-logits, kind="stable")[:k].tolist()


@pytest.mark.parametrize("size", [2559, 2560, 49152, 151936])
@pytest.mark.parametrize("k", [1, 39, 40, 600])
def test_top_k_of_a_large_vocabulary_with_ties_and_masked_tokens(size: int, k: int) -> None:
    rng = np.random.default_rng(size + k)
    logits = np.round(rng.normal(size=size) * 4).astype(np.float32)
    logits[rng.integers(0, size, size // 3)] = -np.inf
    assert top_k(logits, k).tolist() == np.argsort(-logits, kind="stable")[:k].tolist()


@given(LOGITS, st.floats(0.01, 0.99))
def test_top_p_keeps_the_least_that_reaches_p(logits: np.ndarray, p: float) -> None:
    scores = np.sort(logits)[::-1]
    keep = top_p(scores, p)
    probabilities = softmax(scores).astype(np.float64)
    assert probabilities[: keep - 1].sum() < p + 1e-6
    assert keep == len(scores) + 1 or probabilities[:keep].sum() > p - 1e-6


@given(LOGITS, st.floats(0.01, 1.0))
def test_min_p_keeps_what_is_close_to_the_best(logits: np.ndarray, p: float) -> None:
    scores = np.sort(logits)[::-1]
    keep = min_p(scores, p)
    assert keep >= 1
    ratios = np.exp((scores - scores[0]).astype(np.float64))
    assert np.all(ratios[1:keep] >= p * 0.999)
    assert np.all(ratios[keep:] <= p * 1.001)


@given(LOGITS)
def test_candidates_are_never_empty(logits: np.ndarray) -> None:
    ids, scores = candidates(logits, SamplingParams(top_k=1, top_p=0.0, min_p=1.0))
    assert ids.tolist() == [int(np.argmax(logits))]
    assert scores[0] == logits.max()
