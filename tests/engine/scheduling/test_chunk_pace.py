"""The pace of prompts beside decoded tokens, over machines with a fixed and a marginal cost."""

import pytest

from sharpi.engine.scheduling.steps import ChunkPace


def settled(fixed: float, marginal: float, batch_size: int = 512, steps: int = 60) -> int:
    """Returns the most frequent chunk size after steps with these fixed and marginal costs."""
    pace, sizes = ChunkPace(batch_size), []
    for _ in range(steps):
        sizes.append(pace.num_tokens)
        pace.record(pace.num_tokens, fixed + marginal * pace.num_tokens)
    return max(set(sizes[steps // 2 :]), key=sizes.count)


@pytest.mark.parametrize(
    ("fixed", "marginal", "tokens"),
    [
        (0.001, 1e-5, 512),  # all at once takes 6 ms
        (0.01, 1e-3, 128),  # 256 would take 0.27 s
        (0.01, 2e-2, 64),  # slow all the same: twice what the fewest take
        (0.5, 1e-3, 256),  # experts are read in any case
    ],
)
def test_steps_are_short_where_that_is_possible(fixed: float, marginal: float, tokens: int) -> None:
    assert settled(fixed, marginal) == tokens


def test_it_follows_a_machine_that_slows_down_and_recovers() -> None:
    pace = ChunkPace(512)
    for cost, slowest, fastest in ((1e-5, 512, 512), (5e-3, 32, 64), (1e-5, 512, 512)):
        for _ in range(200):
            pace.record(pace.num_tokens, cost * pace.num_tokens)
        assert slowest <= pace.num_tokens <= fastest


@pytest.mark.parametrize("batch_size", [1, 7, 32, 48])
def test_a_small_batch_is_the_limit(batch_size: int) -> None:
    pace = ChunkPace(batch_size)
    for _ in range(5):
        assert 1 <= pace.num_tokens <= batch_size
        pace.record(pace.num_tokens, 1e-6)
    assert pace.num_tokens == batch_size


def test_the_end_of_a_prompt_says_nothing() -> None:
    pace = ChunkPace(512)
    before = pace.num_tokens
    pace.record(3, 9.0)
    assert pace.num_tokens == before
