"""The sampler: penalties, greedy and seeds, against their plain definitions."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.sampling.sampler import Sampler, candidates, min_p, softmax, top_k, top_p
from sharpi.errors import ModelFileError
from sharpi.settings import GenerationRequest, SamplingParams

OPEN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=1)


def sampler_of(params: SamplingParams, history: Iterable[int] = ()) -> Sampler:
    return Sampler(GenerationRequest(sampling=params), history)


def test_greedy_takes_the_first_best_and_ignores_the_seed() -> None:
    logits = np.array([0, 3, 1, 3], np.float32)
    assert [
        sampler_of(SamplingParams(temperature=0, seed=s)).choose(logits).id for s in (1, 2)
    ] == [1, 1]


def test_the_same_seed_draws_the_same_tokens() -> None:
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)

    def draw(seed: int) -> list[int]:
        sampler = sampler_of(SamplingParams(seed=seed))
        return [sampler.choose(logits).id for _ in range(30)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    sampler = sampler_of(OPEN)
    counts = np.bincount([sampler.choose(logits).id for _ in range(4000)], minlength=3) / 4000
    assert np.allclose(counts, [0.6, 0.3, 0.1], atol=0.03)


def test_temperature_sharpens() -> None:
    logits = np.array([1.0, 0.0], np.float32)
    sampler = sampler_of(SamplingParams(temperature=0.1, top_k=0, top_p=1, min_p=0, seed=1))
    assert {sampler.choose(logits).id for _ in range(200)} == {0}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(temperature=0, repeat_penalty=2.0), [2, 0, 1]),
        (SamplingParams(temperature=0, presence_penalty=1.5), [2, 0, 1]),
        (SamplingParams(temperature=0, frequency_penalty=1.5), [2, 0, 1]),
    ],
)
def test_penalties_move_on_from_what_was_said(params: SamplingParams, expected: list[int]) -> None:
    logits = np.array([2.9, 2.8, 3.0], np.float32)
    sampler = sampler_of(params)
    assert [sampler.choose(logits).id for _ in range(3)] == expected


def test_penalties_count_the_prompt_but_only_its_last_tokens() -> None:
    logits = np.array([1.0, 0.9], np.float32)
    params = SamplingParams(temperature=0, repeat_penalty=4.0, penalty_last_n=1)
    assert sampler_of(params, [0]).choose(logits).id == 1
    assert sampler_of(params, [0, 1]).choose(logits).id == 0


def test_a_repeat_penalty_lowers_negative_logits_too() -> None:
    logits = np.array([-1.0, -1.5], np.float32)
    assert sampler_of(SamplingParams(temperature=0, repeat_penalty=2.0), [0]).choose(logits).id == 1


def test_the_logits_are_left_as_they_are() -> None:
    logits = np.array([1.0, 2.0], np.float32)
    sampler_of(SamplingParams(temperature=0, presence_penalty=9.0), [1]).choose(logits)
    assert logits.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_of_a_damaged_file_are_an_error(temperature: float, bad: float) -> None:
    sampler = sampler_of(SamplingParams(temperature=temperature, seed=1))
    with pytest.raises(ModelFileError, match="not finite numbers"):
        sampler.choose(np.array([0, bad, 1], np.float32))


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
