"""Trials of risky grammars: one at a time, few waiting, and each only once."""

import threading
from collections.abc import Callable

import pytest

from sharpi.constraints import children, trial
from sharpi.constraints.children import Children
from sharpi.constraints.trial import Trials
from sharpi.errors import BusyError, GrammarError


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    def try_it(grammar: str) -> str:
        seen.append(grammar)
        return "too complex" if "bad" in grammar else ""

    monkeypatch.setattr(trial, "_tried", try_it)
    return seen


def test_what_is_harmless_is_not_tried(tried: list[str]) -> None:
    Trials(Children()).check('{"type": "integer"}')
    assert tried == []


def test_outcomes_are_remembered_good_and_bad(tried: list[str]) -> None:
    trials = Trials(Children())
    for _ in range(3):
        trials.check('{"pattern": "good"}')
        with pytest.raises(GrammarError, match="too complex"):
            trials.check('{"pattern": "bad"}')
    assert len(tried) == 2


def test_only_a_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, has_begun = threading.Event(), threading.Event()
    running: list[int] = []

    def wait(grammar: str) -> str:
        running.append(1)
        has_begun.set()
        goes_on.wait(60)
        assert len(running) == 1, "two trials at once"
        running.pop()
        return ""

    monkeypatch.setattr(trial, "_tried", wait)
    trials = Trials(Children())

    def check(number: int) -> Callable[[], None]:
        return lambda: trials.check(f'{{"pattern": "{number}"}}')

    threads = [threading.Thread(target=check(number)) for number in range(children._MAX_WAITING)]
    threads[0].start()
    has_begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    while trials._children._places._value:  # type: ignore[attr-defined]
        threading.Event().wait(0.01)
    with pytest.raises(BusyError, match="being compiled"):
        trials.check('{"pattern": "one more"}')
    goes_on.set()
    for thread in threads:
        thread.join(60)
    trials.check('{"pattern": "one more"}')


def test_a_trial_that_a_busy_machine_cuts_short_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials = Trials(Children())
    monkeypatch.setattr(children, "_WALL_SECONDS", 0.001)
    with pytest.raises(BusyError, match="too busy"):
        trials.check('{"pattern": "once more"}')
    assert not trials._outcomes
