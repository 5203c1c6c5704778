"""Typing at a terminal: prompts, Ctrl-C, Ctrl-D, and a history that never fails."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharpi.cli.chat.line_input import history_path

ROOT = Path(__file__).parents[3]


def test_history_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "sharpi" / "history"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert history_path() == Path("/home/someone/.local/state/sharpi/history")


class Terminal:
    """`sharpi chat` on a pseudo-terminal."""

    def __init__(self, state: Path, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[1] / "fake_engine.py"), "chat", "m.gguf"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=_own_terminal,
            env={
                "PYTHONPATH": str(ROOT),
                "PATH": "/usr/bin:/bin",
                "TERM": "xterm",
                "XDG_STATE_HOME": str(state),
                **variables,
            },
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> str:
        """Returns the output up to and including `text`."""
        while text not in self.seen:
            is_ready, _, _ = select.select([self._ours], [], [], 10)
            assert is_ready, f"{text!r} did not come, but {self.seen!r}"
            self.seen += os.read(self._ours, 4096).decode()
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def _own_terminal() -> None:
    """Make stdin the controlling terminal, so that the byte of Ctrl-C becomes SIGINT."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_conversation_at_the_terminal(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.wait_for("/help for help.")
        terminal.wait_for("> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        time.sleep(0.1)  # let readline go back to waiting, where it notices a signal
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D or /exit leaves.")
        terminal.wait_for("> ")
        terminal.type("hello\n")
        terminal.wait_for("more more")
        terminal.type("\x03")
        terminal.wait_for("> ")
        terminal.type("/stats\n")
        terminal.wait_for("2 messages")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.process.wait(timeout=60) == 0
    assert (tmp_path / "sharpi" / "history").read_text().splitlines()[-2:] == ["hello", "/stats"]


def test_history_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "sharpi").write_text("a file where the folder should be")
    with Terminal(tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("/exit\n")
        assert terminal.process.wait(timeout=60) == 0
