"""Typing at any terminal: prompts, Ctrl-C, Ctrl-D, and a history that never fails."""

import os
import signal
import stat
from pathlib import Path

import pytest

pytest.importorskip("pyte")
from terminal import FAKE_ENGINE, Terminal, typed_in

from sharpi.cli.chat.terminal_input import history_path

CHAT = (*FAKE_ENGINE, "chat", "m.gguf")


def test_history_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "sharpi" / "history"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert history_path() == Path("/home/someone/.local/state/sharpi/history")


@pytest.fixture(params=["dumb", "xterm-256color"])
def term(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_conversation_at_the_terminal(tmp_path: Path, term: str) -> None:
    with Terminal(CHAT, tmp_path, TERM=term) as terminal:
        terminal.wait_for("/help for help.")
        terminal.wait_for("\n>")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D or /exit leaves.")
        terminal.wait_for_line()
        terminal.type("hello\r")
        terminal.wait_for("more more")
        terminal.type("\x03")
        terminal.wait_for_line()
        terminal.type("/stats\r")
        terminal.wait_for("2 messages")
        terminal.wait_for_line()
        terminal.type("\x04")
        assert terminal.wait() == 0
    if term != "dumb":
        assert typed_in(tmp_path) == ["hello", "/stats"]
        assert stat.S_IMODE((tmp_path / "sharpi" / "history").stat().st_mode) == 0o600


def test_history_that_cannot_be_written_is_no_failure(tmp_path: Path, term: str) -> None:
    (tmp_path / "sharpi").write_text("a file where the folder should be")
    with Terminal(CHAT, tmp_path, TERM=term) as terminal:
        terminal.wait_for("\n>")
        terminal.type("hello\r")
        terminal.wait_for("One two")
        terminal.type("\x03")
        terminal.wait_for_line()
        terminal.type("/exit\r")
        assert terminal.wait() == 0
    assert "note: the conversation is not logged" in terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("closes_window", [False, True])
def test_a_lost_terminal_loses_nothing(tmp_path: Path, term: str, closes_window: bool) -> None:
    with Terminal(CHAT, tmp_path, TERM=term, LAST_WORDS="closed") as terminal:
        terminal.wait_for("\n>")
        terminal.type("hello\r")
        terminal.wait_for("more more")
        if closes_window:
            terminal.hang_up()
        else:
            os.kill(terminal.process.pid, signal.SIGHUP)
        # A write to the lost terminal may fail before the signal comes.
        codes = (128 + signal.SIGHUP, 1) if closes_window else (128 + signal.SIGHUP,)
        assert terminal.process.wait(60) in codes
    assert "Traceback" not in terminal.text
    assert typed_in(tmp_path) == ([] if term == "dumb" else ["hello"])
    log = (tmp_path / "sharpi" / "conversations.sqlite3").read_bytes()
    wal = tmp_path / "sharpi" / "conversations.sqlite3-wal"
    kept = log + (wal.read_bytes() if wal.exists() else b"")
    assert b"hello" in kept
    assert b"One two more" in kept
