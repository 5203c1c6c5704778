"""Notes of a running engine come after the answer on a terminal, at once elsewhere."""

import sys

import pytest

from sharpi.system.process import notes_after_answer, print_running_note


def test_at_once_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print_running_note("the pin happened")
    assert capsys.readouterr().err == "note: the pin happened\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_gets_them_after_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with notes_after_answer():
        print_running_note("one")
        during = capsys.readouterr().err
    assert during == ("" if is_terminal else "note: one\n")
    assert during + capsys.readouterr().err == "note: one\n"
    print_running_note("two")
    assert capsys.readouterr().err == "note: two\n"


def test_a_failing_answer_loses_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    @notes_after_answer()
    def answer() -> None:
        print_running_note("one")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer()
    assert capsys.readouterr().err == "note: one\n"
