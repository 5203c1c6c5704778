"""MissChoice over scripted times: the cost beside the best mode, and changes of the choice."""

import random
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sharpi.engine.backends.gpu.miss_choice import (
    FIRST_TOKENS,
    FIRST_WARM_UP,
    MAX_PAUSE,
    RECENT_TOKENS,
    ROUND_TOKENS,
    ROUNDS,
    SLOW_RATIO,
    WARM_UP,
    MissChoice,
)
from sharpi.ops.cuda.recorded import MissMode

MODES: tuple[MissMode, ...] = ("stream", "load", "cpu")
MARGIN = 1.05
Machine = Callable[[int, MissMode], float]  # seconds of the token with this number
Times = tuple[float, float, float]


def run(machine: Machine, tokens: int) -> tuple[MissChoice, list[MissMode], float]:
    """Returns the choice after a run, the mode of each token, and all seconds."""
    choice, modes, seconds = MissChoice(MODES), list[MissMode](), 0.0
    for token in range(tokens):
        modes.append(choice.mode)
        taken = machine(token, choice.mode)
        seconds += taken
        choice.record(taken)
    return choice, modes, seconds


def steady(times: Times) -> Machine:
    by_mode = dict(zip(MODES, times, strict=True))
    return lambda token, mode: by_mode[mode]


def noisy(times: Times, seed: int, deviation: float) -> Machine:
    """Gives every mode the same texts: a token's luck does not depend on the mode."""
    by_mode, luck = dict(zip(MODES, times, strict=True)), random.Random(seed)
    factors = [max(0.3, luck.gauss(1, deviation)) for _ in range(20_000)]
    return lambda token, mode: by_mode[mode] * factors[token]


@settings(deadline=None)
@given(st.tuples(*[st.floats(1, 8)] * 3))
@example((8.0, 8.0, 1.0))
@example((1.0, 8.0, 8.0))
@example((1.5, 1.5, 1.0))
@example((1.04, 1.0, 1.03))
@example((1.14, 1.0, 1.0))
def test_a_run_is_as_quick_as_its_best_mode(times: Times) -> None:
    tokens = 2000
    choice, _, seconds = run(steady(times), tokens)
    assert seconds <= MARGIN * tokens * min(times)
    assert dict(zip(MODES, times, strict=True))[choice.fastest] <= 1.021 * min(times)


@settings(deadline=None)
@given(st.tuples(*[st.floats(1, 20)] * 3))
@example((20.0, 20.0, 1.0))
@example((1.0, 20.0, 20.0))
def test_a_short_run_pays_for_a_few_tokens_of_the_other_modes(times: Times) -> None:
    """Every mode is tried once; two slow and similar ones are not told apart."""
    best, met = min(times), FIRST_WARM_UP + FIRST_TOKENS
    _, _, seconds = run(steady(times), 40)
    excess = seconds - 40 * best
    assert excess <= met * sum(t - best for t in times) + 0.5 * 40 * best
    slow = [t for t in times if t > SLOW_RATIO * best]
    _, modes, _ = run(steady(times), 400)
    for mode, seconds in zip(MODES, times, strict=True):
        if seconds in slow:
            assert modes.count(mode) <= met


@pytest.mark.slow
@pytest.mark.parametrize("times", list(permutations((1.0, 1.1, 3.0))))
@pytest.mark.parametrize("seed", range(5))
def test_tokens_that_differ_hide_nothing(times: Times, seed: int) -> None:
    """A token may take twice as long as the next: another text, other experts."""
    tokens, machine = 6000, noisy(times, seed, 0.25)
    best = min(sum(machine(token, mode) for token in range(tokens)) for mode in MODES)
    _, _, seconds = run(machine, tokens)
    assert seconds <= MARGIN * best


def test_the_machine_gets_other_work() -> None:
    """The slower CPU is noticed within the recent tokens and a round of each mode."""

    def machine(token: int, mode: MissMode) -> float:
        return {"stream": 2.0, "load": 3.0, "cpu": 1.0 if token < 1500 else 4.0}[mode]

    assert run(machine, 1500)[0].fastest == "cpu"
    choice, modes, seconds = run(machine, 6000)
    assert choice.fastest == "stream"
    assert modes[1500:].count("cpu") < 2 * RECENT_TOKENS + ROUNDS * (ROUND_TOKENS + WARM_UP)
    assert seconds <= MARGIN * (1500 + 2 * 4500)


def test_a_mode_that_becomes_quicker_is_found() -> None:
    def machine(token: int, mode: MissMode) -> float:
        return {"stream": 1.0, "load": 1.3, "cpu": 4.0 if token < 2000 else 0.5}[mode]

    assert run(machine, 2000)[0].fastest == "stream"
    assert run(machine, 2000 + MAX_PAUSE)[0].fastest == "cpu"


def test_a_change_is_told_once_there_was_a_fastest_mode() -> None:
    times: dict[MissMode, float] = {"stream": 2.0, "load": 3.0, "cpu": 1.0}
    choice = MissChoice(MODES)
    told = [choice.record(times[choice.mode]) for _ in range(300)]
    assert not any(told)
    first = choice.fastest
    assert choice.seconds == times
    times["cpu"] = 5.0
    told = [choice.record(times[choice.mode]) for _ in range(400)]
    assert told.count(True) == 1
    assert (first, choice.fastest) == ("cpu", "stream")


def test_tokens_that_load_kernels_do_not_count() -> None:
    """Two tokens of each mode take a hundred times as long, even those of the fastest mode."""
    seen = dict.fromkeys(MODES, 0)

    def machine(token: int, mode: MissMode) -> float:
        seen[mode] += 1
        usual = {"stream": 1.0, "load": 1.2, "cpu": 0.9}[mode]
        return 100 * usual if seen[mode] <= FIRST_WARM_UP else usual

    choice, _, _ = run(machine, 400)
    assert choice.fastest == "cpu"
    assert choice.seconds == pytest.approx({"stream": 1.0, "load": 1.2, "cpu": 0.9})


@pytest.mark.parametrize("period", [7, 11, 50])
def test_a_disturbed_token_now_and_then_changes_nothing(period: int) -> None:
    """A graph is captured again, or another process takes the core for a moment."""

    def machine(token: int, mode: MissMode) -> float:
        usual = {"stream": 1.3, "load": 1.6, "cpu": 1.0}[mode]
        return usual * (10 if token % period == period - 1 else 1)

    choice, modes, _ = run(machine, 3000)
    assert choice.fastest == "cpu"
    assert modes.count("cpu") > 0.95 * len(modes)


def test_the_same_times_give_the_same_modes() -> None:
    runs = [run(noisy((1.0, 1.05, 1.1), 3, 0.3), 3000)[1] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("mode", MODES)
def test_one_mode_is_no_choice(mode: MissMode) -> None:
    choice = MissChoice([mode])
    for seconds in (1.0, 100.0, 0.1) * 40:
        assert choice.mode == mode
        assert not choice.record(seconds)
    assert choice.seconds == {}
    assert choice.is_settled


def test_it_is_settled_while_nothing_is_compared() -> None:
    choice, machine = MissChoice(MODES), steady((1.0, 1.1, 3.0))
    settled = []
    for token in range(1000):
        settled.append(choice.is_settled)
        if choice.is_settled:
            assert choice.mode == choice.fastest
        choice.record(machine(token, choice.mode))
    assert not settled[0]
    assert settled[-1]
    assert settled.count(True) > 700
