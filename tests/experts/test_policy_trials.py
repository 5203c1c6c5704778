"""Which parts of the default policy are tried, and what the measured times decide."""

import pytest

from sharpi.experts.policy_trials import PolicyTrials
from sharpi.trial import MIN_PAUSE


def run(
    trials: PolicyTrials, tokens: int, *, prefetching: float, learning: float, lru: float
) -> list[str]:
    """Runs tokens that take these seconds; returns the messages."""
    notes = list[str]()
    for _ in range(tokens):
        plain = learning if trials.learns_now else lru
        note = trials.record(prefetching if trials.prefetches_now else plain)
        notes += [] if note is None else [note]
    return notes


BOTH = 500  # tokens of a trial of each part


def test_what_is_fastest_stays() -> None:
    trials = PolicyTrials(may_prefetch=True, may_fall_back=True)
    assert run(trials, BOTH, prefetching=1.0, learning=1.1, lru=1.2) == []
    assert (trials.prefetches, trials.learns) == (True, True)
    assert trials.learning is not None
    assert trials.learning.ratio(True, False) == pytest.approx(1.0 / 1.2)


def test_prefetch_alone_is_switched_off() -> None:
    trials = PolicyTrials(may_prefetch=True, may_fall_back=True)
    (note,) = run(trials, BOTH, prefetching=1.2, learning=1.0, lru=1.1)
    assert "prefetching of predicted experts switched off" in note
    assert (trials.prefetches, trials.learns) == (False, True)


def test_lru_takes_over_and_the_learned_policy_may_return() -> None:
    trials = PolicyTrials(may_prefetch=True, may_fall_back=True)
    (note,) = run(trials, BOTH, prefetching=1.2, learning=1.25, lru=1.0)
    assert "slots now evict the oldest expert" in note
    assert "1.20 times" in note
    assert (trials.prefetches_now, trials.prefetches, trials.learns) == (False, False, False)
    assert run(trials, MIN_PAUSE, prefetching=9.0, learning=9.0, lru=1.0) == []
    notes = run(trials, 4000, prefetching=0.9, learning=0.95, lru=1.0)
    assert any("the learned policy decides about slots again" in note for note in notes)
    assert trials.learns


def test_a_difference_of_a_percent_changes_nothing_either_way() -> None:
    trials = PolicyTrials(may_prefetch=False, may_fall_back=True)
    assert run(trials, 4000, prefetching=0.0, learning=1.01, lru=1.0) == []
    assert trials.learns
    assert run(trials, 4000, prefetching=0.0, learning=1.1, lru=1.0) != []
    assert run(trials, 4000, prefetching=0.0, learning=0.99, lru=1.0) == []
    assert not trials.learns


def test_a_policy_that_was_asked_for_stays() -> None:
    trials = PolicyTrials(may_prefetch=False, may_fall_back=False)
    assert run(trials, 1000, prefetching=9.0, learning=9.0, lru=1.0) == []
    assert trials.learns_now
    assert not trials.prefetches_now
