"""A program at a pseudo-terminal, and the screen that a user would see."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyte
from chat_forks import ChatFork
from prompt_toolkit.history import FileHistory

ROOT = Path(__file__).parents[2]
FAKE_ENGINE = (sys.executable, str(Path(__file__).parent / "fake_engine.py"))
SHARPI = (sys.executable, "-m", "sharpi")
SECONDS = 90


class Terminal:
    """Starts a program with a terminal of its own; what it writes is drawn on `screen`."""

    def __init__(
        self, command: Sequence[str], state: Path, rows: int = 24, columns: int = 80, **env: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self._lines: list[str] | None = None  # since the last data; drawing them is slow
        environment = {
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ["PATH"],
            "HOME": str(state),
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(state),
        }
        self.process = _started(command, theirs, environment | env)
        os.close(theirs)

    def type(self, text: str) -> None:
        """Sends keys; "\\x03" is Ctrl-C."""
        os.write(self._ours, text.encode())

    def paste(self, text: str) -> None:
        """Sends text as a terminal in bracketed-paste mode sends pasted text."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without what scrolled away."""
        if self._lines is None:
            self._lines = [line.rstrip() for line in self.screen.display]
        return self._lines

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines).rstrip()

    def wait_for(self, wanted: str | Callable[[str], bool], seconds: float = SECONDS) -> str:
        """Reads until the screen shows `wanted`, and returns the screen."""
        is_there = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + seconds
        while not is_there(self.text):
            assert time.monotonic() < deadline, f"{wanted!r} did not come, but\n{self.text}"
            self.read(0.05)
        return self.text

    def read(self, seconds: float) -> bool:
        """Draws what comes within so many seconds; False if the program has closed."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the last process of the terminal has ended
            return False
        self.written += data
        self._stream.feed(data)
        self._lines = None
        return bool(data)

    def wait_for_line(self) -> str:
        """Reads until a chat waits for a line that is still empty, and returns the screen."""
        return self.wait_for(_waits_for_a_line)

    def wait(self, seconds: float = SECONDS) -> int:
        """Returns the exit code, and draws what comes until then."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; the screen is\n{self.text}"
            self.read(0.02)
        while self.read(0.02) and select.select([self._ours], [], [], 0)[0]:
            pass
        return self.process.returncode

    def hang_up(self) -> None:
        """Closes the terminal's window."""
        os.close(self._ours)
        self._ours = -1

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            os.close(self._ours)


def _waits_for_a_line(text: str) -> bool:
    """True once an empty line of input is drawn, with or without a line at the bottom below it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1:] == [">"] or (lines[-2:-1] == [">"] and " tokens" in lines[-1])


def _started(
    command: Sequence[str], terminal: int, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a program at a terminal; the fake engine begins with its modules imported."""
    options: dict[str, Any] = {"cwd": ROOT, "env": environment}
    options |= {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    if command[: len(FAKE_ENGINE)] == FAKE_ENGINE:
        return ChatFork(command, **options)
    return subprocess.Popen(command, **options, start_new_session=True, preexec_fn=_own_terminal)


def _own_terminal() -> None:
    """Makes stdin the controlling terminal, so that the byte of Ctrl-C becomes SIGINT.

    A shell that runs the tests in the background has them ignore it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def typed_in(state: Path) -> list[str]:
    """Returns the messages of the history in a state folder, oldest first."""
    history = FileHistory(str(state / "sharpi" / "history"))
    return list(history.load_history_strings())[::-1]
