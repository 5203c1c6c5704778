"""Trials of risky grammars: one at a time, few waiting, each only once; errors as one line."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from sharpi.constraints import trial
from sharpi.constraints.trial import Trials, run_child, short_message
from sharpi.errors import BusyError, GrammarError

GRAMMAR = '{"grammars": [{"json_schema": {"type": "integer"}}]}'


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    def try_it(grammar: str) -> str:
        seen.append(grammar)
        return "too complex" if "bad" in grammar else ""

    monkeypatch.setattr(trial, "_tried", try_it)
    return seen


def test_what_is_harmless_is_not_tried(tried: list[str]) -> None:
    Trials().check('{"type": "integer"}')
    assert tried == []


def test_outcomes_are_remembered_good_and_bad(tried: list[str]) -> None:
    trials = Trials()
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
    trials = Trials()

    def check(number: int) -> Callable[[], None]:
        return lambda: trials.check(f'{{"pattern": "{number}"}}')

    threads = [threading.Thread(target=check(number)) for number in range(trial._MAX_WAITING)]
    threads[0].start()
    has_begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    while trials._waiting._value:  # type: ignore[attr-defined]
        threading.Event().wait(0.01)
    with pytest.raises(BusyError, match="being compiled"):
        trials.check('{"pattern": "one more"}')
    goes_on.set()
    for thread in threads:
        thread.join(60)
    trials.check('{"pattern": "one more"}')


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the waits, so that a child takes many of them even on a fast machine."""
    monkeypatch.setattr(trial, "_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(trial, "_MAX_IDLE_WAITS", 3)
    monkeypatch.setattr(trial, "_MAX_WAITS", 1_000_000)


@pytest.mark.usefixtures("short_waits")
def test_a_trial_that_gets_no_processor_time_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "_processor_seconds", lambda pid: 0.0)
    trials = Trials()
    with pytest.raises(BusyError, match="too busy"):
        trials.check('{"pattern": "once more"}')
    assert not trials._messages


@pytest.mark.usefixtures("short_waits")
def test_a_child_that_is_given_little_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(1)
    monkeypatch.setattr(trial, "_processor_seconds", lambda pid: float(next(looks)))
    assert run_child("sharpi.constraints.trial", GRAMMAR) == ""
    assert next(looks) > trial._MAX_IDLE_WAITS


@pytest.mark.usefixtures("short_waits")
def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(1)
    monkeypatch.setattr(trial, "_processor_seconds", lambda pid: float(next(looks)))
    monkeypatch.setattr(trial, "_MAX_WAITS", 5)
    with pytest.raises(BusyError, match="too busy"):
        run_child("sharpi.constraints.trial", GRAMMAR)
    assert next(looks) == 6


def test_the_processor_time_of_a_child_is_seen() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while not trial._processor_seconds(busy.pid):
            time.sleep(0.01)
    finally:
        busy.kill()
        busy.wait()
    idle = subprocess.Popen(["sleep", "60"])
    try:
        assert trial._processor_seconds(idle.pid) < 1
    finally:
        idle.kill()
        idle.wait()


@pytest.mark.slow
def test_a_child_that_works_for_ever_is_ended_by_its_own_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless.py").write_text(
        "from sharpi.constraints import trial\n"
        "trial.CPU_SECONDS = 1\n"
        "def work(text):\n"
        "    while True: pass\n"
        "trial.serve_parent(work)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert run_child("endless", "") is None


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("two\n  lines", "two lines"),
        ("short <state>\nTokens: ...\n</state>", "short"),
        ("panic: range <backtrace>\n 0: <unknown>", "panic: range"),
        ("NoExtensionBias\n<non-verbose/>", "no text satisfies the grammar"),
        ("", "the grammar cannot be used"),
    ],
)
def test_one_line(message: str, line: str) -> None:
    assert short_message(message) == line


def test_a_long_one_is_cut() -> None:
    assert len(short_message("x" * 1000)) == 300
