"""Reads what the user types, line by line: from a pipe, or at a terminal that cannot draw.

A trailing backslash continues a message on the next line. Three double quotes open a block, which
three double quotes at the end of a line close. The same rules apply to a pipe, without prompts.
"""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sharpi.cli.log.log_store import state_folder
from sharpi.cli.output.terminal import stdin_is_terminal
from sharpi.errors import UsageError
from sharpi.system.files import MOST_BYTES, read_line

_MOST_ENTRIES = 1000
_NEWLINE = "\u2028"


def history_path() -> Path:
    """Returns the file of typed messages in sharpi's state folder."""
    return (state_folder() or Path.home()) / "history"


class HistoryFile:
    """A file of typed messages; errors in reading or writing it are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[str]:
        """Returns the newest 1000 entries, oldest first; empty if the file cannot be read."""
        try:
            lines = self._path.read_text("utf-8", "replace").split("\n")
        except OSError:
            return []
        kept = [line for line in lines if line][-_MOST_ENTRIES:]
        if len(lines) > 2 * _MOST_ENTRIES:
            self._replace(kept)
        return [line.replace(_NEWLINE, "\n") for line in kept]

    def append(self, entry: str) -> None:
        """Adds an entry at the end of the file."""
        line = entry.replace("\n", _NEWLINE) + "\n"
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "wb") as file:
                file.write(line.encode("utf-8", "replace"))

    def _replace(self, lines: list[str]) -> None:
        from sharpi.system.files import write_atomically

        with suppress(OSError):
            write_atomically(self._path, "".join(line + "\n" for line in lines).encode())


PROMPT, CONTINUATION = "> ", "... "
_QUOTES = '"""'
_HISTORY_LENGTH = 1000


class Input(Protocol):
    """An interface for reading messages; `status` returns the text of the screen's bottom line."""

    is_interactive: bool
    has_editor: bool  # whether `read` shows `initial_text` for editing
    status: Callable[[], str]

    def read(self, initial_text: str = "") -> str | None:
        """Returns the next message, None at the end of the input; raises KeyboardInterrupt.

        `initial_text` is a text that the user may edit before it is sent, at a terminal.
        """

    def confirm(self, question: str) -> bool:
        """Asks a yes-or-no question at a terminal; returns False if nobody can answer."""


class LineInput:
    """Reads messages from stdin, with readline at a terminal."""

    has_editor = False

    def __init__(self) -> None:
        self._left = MOST_BYTES  # bytes that the current message may still take
        self.is_interactive = stdin_is_terminal()
        self.status: Callable[[], str] = str
        self._history = HistoryFile(history_path()) if self.is_interactive else None
        if self._history is not None:
            _prepare_readline(self._history)
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")

    def read(self, initial_text: str = "") -> str | None:
        """Returns the next message, or None at the end of the input; raises KeyboardInterrupt."""
        self._left = MOST_BYTES
        message = message_of(self._line)
        if message and self._history is not None:
            self._history.append(message)
        return message

    def confirm(self, question: str) -> bool:
        """Asks a yes-or-no question; returns False if stdin is no terminal."""
        if not self.is_interactive:
            return False
        answer = self._line(f"{question} [y/N] ")
        return answer is not None and is_yes(answer)

    def _line(self, prompt: str) -> str | None:
        if not self.is_interactive:
            return self._piped_line()
        try:
            if sys.stdout.isatty():
                return input(prompt)
            print(prompt, end="", file=sys.stderr, flush=True)
            return input()
        except EOFError:
            print(file=sys.stderr)
            return None

    def _piped_line(self) -> str | None:
        try:
            data = read_line(sys.stdin.buffer, "standard input", self._left)
        except OSError as error:
            raise UsageError(f"cannot read standard input: {error.strerror}") from error
        self._left -= sys.getsizeof(data)  # counts overhead, as many short lines take memory, too
        return data.decode("utf-8", "replace").rstrip("\r\n") if data else None


def message_of(next_line: Callable[[str], str | None]) -> str | None:
    """Reads one message with `next_line`, joining the lines of a block or a continued message.

    Returns None at the end of the input.
    """
    line = next_line(PROMPT)
    if line is None:
        return None
    if line.lstrip().startswith(_QUOTES):
        return _block(line.lstrip().removeprefix(_QUOTES), next_line)
    return _continued(line, next_line)


def _continued(line: str, next_line: Callable[[str], str | None]) -> str:
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        more = next_line(CONTINUATION)
        if more is None:
            break
        lines.append(more)
    return "\n".join(lines)


def _block(first: str, next_line: Callable[[str], str | None]) -> str:
    lines, more = [], first
    while not more.rstrip().endswith(_QUOTES):
        lines.append(more)
        following = next_line(CONTINUATION)
        if following is None:
            return "\n".join(lines).strip("\n")
        more = following
    lines.append(more.rstrip().removesuffix(_QUOTES))
    return "\n".join(lines).strip("\n")


def is_yes(answer: str) -> bool:
    """Returns whether the user's answer to a question is y or yes."""
    return answer.strip().lower() in ("y", "yes")


def _prepare_readline(history: HistoryFile) -> None:
    """Loads the history into readline; lets a paste hold newlines, and Alt-Enter insert one."""
    with suppress(ImportError):
        import readline

        readline.set_history_length(_HISTORY_LENGTH)
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
        for entry in history.entries():
            readline.add_history(entry.replace("\n", " "))
