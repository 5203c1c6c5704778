"""The times at which predicting is judged, and the decisions."""

import pytest

from sharpi.experts.prediction_trial import (
    COSTS_TOO_MUCH,
    MAX_PAUSE_FACTOR,
    PERIOD,
    PERIODS,
    TOKENS_UNTIL_RETRIAL,
    WITHOUT,
    PredictionTrial,
)

TRIAL = PERIOD * PERIODS


def run(trial: PredictionTrial, tokens: int, predicting: float, plain: float = 1.0) -> list[int]:
    """Runs tokens that take these seconds; returns the tokens at which the decision changed."""
    return [
        token
        for token in range(tokens)
        if trial.record(predicting if trial.predicts_now else plain)
    ]


def test_a_trial_goes_without_now_and_then() -> None:
    trial = PredictionTrial()
    predicted = []
    for _ in range(TRIAL):
        predicted.append(trial.predicts_now)
        trial.record(1.0)
    assert predicted == ([True] * (PERIOD - WITHOUT) + [False] * WITHOUT) * PERIODS


@pytest.mark.parametrize("predicting", [0.5, 1.0, COSTS_TOO_MUCH])
def test_what_does_not_cost_too_much_stays(predicting: float) -> None:
    trial = PredictionTrial()
    assert run(trial, TRIAL, predicting) == []
    assert trial.is_on
    assert trial.ratio == pytest.approx(predicting)
    assert all(trial.predicts_now and not trial.record(1.0) for _ in range(TOKENS_UNTIL_RETRIAL))


def test_what_costs_too_much_is_switched_off_and_tried_again() -> None:
    trial = PredictionTrial()
    assert run(trial, TRIAL, 1.2) == [TRIAL - 1]
    assert not trial.is_on
    assert trial.ratio == pytest.approx(1.2)
    for _ in range(TOKENS_UNTIL_RETRIAL):
        assert not trial.predicts_now
        assert not trial.record(9.0)
    assert run(trial, TRIAL, 0.9) == [TRIAL - 1]
    assert trial.is_on
    assert trial.ratio == pytest.approx(0.9)


def test_a_second_trial_that_agrees_changes_nothing() -> None:
    trial = PredictionTrial()
    run(trial, TRIAL + TOKENS_UNTIL_RETRIAL, 2.0)
    assert run(trial, TRIAL, 3.0) == []
    assert not trial.is_on
    assert trial.ratio == pytest.approx(3.0)


def test_what_stays_off_is_tried_less_and_less_often() -> None:
    trial, pauses = PredictionTrial(), []
    for _ in range(7):
        assert trial.ratio is None or not trial.is_on
        run(trial, TRIAL, 2.0)
        pause = 0
        while trial.is_settled:
            trial.record(1.0)
            pause += 1
        pauses.append(pause // TOKENS_UNTIL_RETRIAL)
    assert pauses == [1, 2, 4, 8, MAX_PAUSE_FACTOR, MAX_PAUSE_FACTOR, MAX_PAUSE_FACTOR]


def test_what_comes_back_is_tried_as_often_as_at_first() -> None:
    trial = PredictionTrial()
    for seconds in (2.0, 2.0, 0.5, 2.0):
        run(trial, TRIAL, seconds)
        pause = 0
        while trial.is_settled:
            trial.record(1.0)
            pause += 1
    assert pause == TOKENS_UNTIL_RETRIAL


def test_hiccups_and_the_token_after_a_switch_do_not_count() -> None:
    trial, before = PredictionTrial(), None
    for token in range(TRIAL):
        predicts = trial.predicts_now
        is_slow = predicts != before or token % 10 == 0
        trial.record(50.0 if is_slow else 1.0)
        before = predicts
    assert trial.is_on
    assert trial.ratio == 1.0


def test_tokens_without_any_time_are_no_division_by_zero() -> None:
    trial = PredictionTrial()
    run(trial, TRIAL, 0.0, 0.0)
    assert trial.is_on
