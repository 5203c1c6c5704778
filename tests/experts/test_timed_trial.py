"""Trial over scripted times: the cost beside the best option, and changes of the decision."""

import random
from collections.abc import Callable
from itertools import pairwise, permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sharpi.trial import (
    FIRST_TOKENS,
    FIRST_WARM_UP,
    MARGIN,
    MAX_PAUSE,
    MIN_PAUSE,
    SLOW_RATIO,
    TRIAL_TOKENS,
    Trial,
)

OPTIONS = ("stream", "load", "cpu")
LEAST_LOST = 1.05
Machine = Callable[[int, str], float]  # seconds of the token with this number
Times = tuple[float, float, float]


def run(machine: Machine, tokens: int) -> tuple[Trial[str], list[str], float]:
    """Returns the trial after a run, the option of each token, and all seconds."""
    trial, options, seconds = Trial(OPTIONS), list[str](), 0.0
    for token in range(tokens):
        options.append(trial.choice)
        taken = machine(token, trial.choice)
        seconds += taken
        trial.record(taken)
    return trial, options, seconds


def steady(times: Times) -> Machine:
    by_option = dict(zip(OPTIONS, times, strict=True))
    return lambda token, option: by_option[option]


def noisy(times: Times, seed: int, deviation: float) -> Machine:
    """Gives every option the same texts: a token's luck does not depend on the option."""
    by_option, luck = dict(zip(OPTIONS, times, strict=True)), random.Random(seed)
    factors = [max(0.3, luck.gauss(1, deviation)) for _ in range(20_000)]
    return lambda token, option: by_option[option] * factors[token]


@pytest.mark.slow
@settings(deadline=None)
@given(st.tuples(*[st.floats(1, 8)] * 3))
@example((8.0, 8.0, 1.0))
@example((1.0, 8.0, 8.0))
@example((1.5, 1.5, 1.0))
@example((1.04, 1.0, 1.03))
@example((1.14, 1.0, 1.0))
def test_a_run_is_as_quick_as_its_best_option(times: Times) -> None:
    tokens = 2000
    trial, _, seconds = run(steady(times), tokens)
    assert seconds <= LEAST_LOST * tokens * min(times)
    assert dict(zip(OPTIONS, times, strict=True))[trial.fastest] <= 1.021 * min(times)


@settings(deadline=None)
@given(st.tuples(*[st.floats(1, 20)] * 3))
@example((20.0, 20.0, 1.0))
@example((1.0, 20.0, 20.0))
def test_a_short_run_pays_for_a_few_tokens_of_the_other_options(times: Times) -> None:
    """Every option is tried once; two slow and similar ones are not told apart."""
    best, met = min(times), FIRST_WARM_UP + FIRST_TOKENS
    _, _, seconds = run(steady(times), 40)
    excess = seconds - 40 * best
    assert excess <= met * sum(t - best for t in times) + 0.5 * 40 * best
    _, options, _ = run(steady(times), 400)
    for option, seconds in zip(OPTIONS, times, strict=True):
        if seconds > SLOW_RATIO * best:
            assert options.count(option) <= met


@pytest.mark.slow
@pytest.mark.parametrize("times", list(permutations((1.0, 1.1, 3.0))))
@pytest.mark.parametrize("seed", range(5))
def test_tokens_that_differ_hide_nothing(times: Times, seed: int) -> None:
    """A token may take twice as long as the next: another text, other experts."""
    tokens, machine = 6000, noisy(times, seed, 0.25)
    best = min(sum(machine(token, option) for token in range(tokens)) for option in OPTIONS)
    _, _, seconds = run(machine, tokens)
    assert seconds <= LEAST_LOST * best


def test_the_machine_gets_other_work() -> None:
    """The slower CPU is noticed within the recent tokens and a trial of two options."""

    def machine(token: int, option: str) -> float:
        return {"stream": 2.0, "load": 3.0, "cpu": 1.0 if token < 1500 else 4.0}[option]

    assert run(machine, 1500)[0].fastest == "cpu"
    trial, options, seconds = run(machine, 6000)
    assert trial.fastest == "stream"
    assert options[1500:].count("cpu") < 3.2 * TRIAL_TOKENS
    assert seconds <= LEAST_LOST * (1500 + 2 * 4500)


def test_an_option_that_becomes_quicker_is_found() -> None:
    def machine(token: int, option: str) -> float:
        return {"stream": 1.0, "load": 1.3, "cpu": 4.0 if token < 2000 else 0.5}[option]

    assert run(machine, 2000)[0].fastest == "stream"
    assert run(machine, 2000 + MAX_PAUSE)[0].fastest == "cpu"


def test_a_change_is_told_once_there_was_a_fastest_option() -> None:
    times = {"stream": 2.0, "load": 3.0, "cpu": 1.0}
    trial = Trial(OPTIONS)
    told = [trial.record(times[trial.choice]) for _ in range(300)]
    assert not any(told)
    first = trial.fastest
    assert trial.seconds == times
    times["cpu"] = 5.0
    told = [trial.record(times[trial.choice]) for _ in range(400)]
    assert told.count(True) == 1
    assert (first, trial.fastest) == ("cpu", "stream")


def test_tokens_that_load_kernels_do_not_count() -> None:
    """Two tokens of each option take a hundred times as long, even those of the fastest one."""
    seen = dict.fromkeys(OPTIONS, 0)

    def machine(token: int, option: str) -> float:
        seen[option] += 1
        usual = {"stream": 1.0, "load": 1.2, "cpu": 0.9}[option]
        return 100 * usual if seen[option] <= FIRST_WARM_UP else usual

    trial, _, _ = run(machine, 500)
    assert trial.fastest == "cpu"
    assert trial.seconds == pytest.approx({"stream": 1.0, "load": 1.2, "cpu": 0.9})


@pytest.mark.parametrize("period", [7, 11, 50])
def test_a_disturbed_token_now_and_then_changes_nothing(period: int) -> None:
    """A graph is captured again, or another process takes the core for a moment."""

    def machine(token: int, option: str) -> float:
        usual = {"stream": 1.3, "load": 1.6, "cpu": 1.0}[option]
        return usual * (10 if token % period == period - 1 else 1)

    trial, options, _ = run(machine, 3000)
    assert trial.fastest == "cpu"
    assert options.count("cpu") > 0.95 * len(options)


def test_the_same_times_give_the_same_options() -> None:
    runs = [run(noisy((1.0, 1.05, 1.1), 3, 0.3), 3000)[1] for _ in range(2)]
    assert runs[0] == runs[1]


def test_one_option_is_no_choice() -> None:
    trial = Trial(["load"])
    for seconds in (1.0, 100.0, 0.1) * 40:
        assert trial.choice == "load"
        assert not trial.record(seconds)
    assert trial.seconds == {}
    assert trial.is_settled


def test_it_is_settled_while_nothing_is_compared() -> None:
    trial, machine = Trial(OPTIONS), steady((1.0, 1.1, 3.0))
    settled = []
    for token in range(1000):
        settled.append(trial.is_settled)
        if trial.is_settled:
            assert trial.choice == trial.fastest
        trial.record(machine(token, trial.choice))
    assert not settled[0]
    assert settled[-1]
    assert settled.count(True) > 700


# What is on by default, and may be switched off


def begun(warm_up: int = 1) -> Trial[bool]:
    """Returns a trial that begins, after the first tokens of the default."""
    trial = Trial((True, False), default=True, warm_up=warm_up)
    for _ in range(TRIAL_TOKENS):
        assert trial.choice
        assert trial.is_settled
        trial.record(1.0)
    return trial


def tried(trial: Trial[bool], on: float, off: float = 1.0) -> bool:
    """Runs tokens of these seconds until the next trial has ended; returns True if it changed."""
    told = []
    while trial.is_settled:
        told.append(trial.record(on if trial.choice else off))
    while not trial.is_settled:
        told.append(trial.record(on if trial.choice else off))
    return any(told)


@pytest.mark.parametrize("warm_up", [1, 8])
def test_the_default_has_the_first_tokens_and_then_they_take_turns(warm_up: int) -> None:
    trial = begun(warm_up=warm_up)
    choices = []
    while not trial.is_settled:
        choices.append(trial.choice)
        trial.record(1.0)
    assert choices[0]
    changes = sum(before != after for before, after in pairwise(choices))
    assert changes >= 5
    assert choices.count(True) == choices.count(False)
    assert TRIAL_TOKENS < choices.count(False) < 2 * TRIAL_TOKENS


@pytest.mark.parametrize("on", [0.5, 1.0, MARGIN])
def test_what_does_not_cost_too_much_stays(on: float) -> None:
    trial = Trial((True, False), default=True)
    assert not tried(trial, on)
    assert trial.fastest
    assert trial.ratio(True, False) == pytest.approx(on)
    for _ in range(MIN_PAUSE - 1):
        assert trial.choice
        assert not trial.record(1.0)


def test_what_costs_too_much_is_switched_off_and_tried_again() -> None:
    trial = Trial((True, False), default=True)
    assert tried(trial, 1.2)
    assert not trial.fastest
    assert trial.ratio(True, False) == pytest.approx(1.2)
    for _ in range(MIN_PAUSE - 1):
        assert not trial.choice
        trial.record(1.0)
    assert not tried(trial, 0.99)  # a difference of a percent brings nothing back
    assert tried(trial, 0.9)
    assert trial.fastest
    assert trial.ratio(True, False) == pytest.approx(0.9)


def pause_after(trial: Trial[bool]) -> int:
    """Runs tokens until the next trial; returns their number."""
    pause = 0
    while trial.is_settled:
        trial.record(1.0)
        pause += 1
    return pause


def test_what_stays_off_is_tried_less_and_less_often() -> None:
    trial, pauses = Trial((True, False), default=True), []
    for _ in range(7):
        tried(trial, 2.0)
        assert not trial.fastest
        pauses.append(pause_after(trial) / MIN_PAUSE)
    assert pauses[0] < 4
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(MAX_PAUSE / MIN_PAUSE, rel=0.01)


def test_what_comes_back_is_tried_as_often_as_at_first() -> None:
    trial, pauses = Trial((True, False), default=True), []
    for seconds in (2.0, 2.0, 0.5, 2.0):
        tried(trial, seconds)
        pauses.append(pause_after(trial))
    assert pauses[3] <= 1.01 * pauses[0]


def test_hiccups_and_the_token_after_a_switch_do_not_count() -> None:
    trial, before, token = begun(), None, 0
    while not trial.is_settled:
        choice = trial.choice
        trial.record(50.0 if choice != before or token % 10 == 0 else 1.0)
        before, token = choice, token + 1
    assert trial.fastest
    assert trial.ratio(True, False) == 1.0


def test_slow_tokens_while_slots_fill_do_not_count_against_the_default() -> None:
    trial, token = begun(), 0
    while not trial.is_settled:
        seconds = 1.0 if trial.choice else 1.1
        trial.record(seconds * (1 + 4 * 0.9**token))
        token += 1
    assert trial.fastest


def test_tokens_without_any_time_are_no_division_by_zero() -> None:
    trial = Trial((True, False), default=True)
    assert not tried(trial, 0.0, 0.0)
    assert trial.fastest
    assert trial.ratio(True, False) == 0
