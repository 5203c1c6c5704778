"""Reads what the user types, line by line: from a pipe, or at a terminal that cannot draw.

A trailing backslash continues a message on the next line. Three double quotes open a block, which
three double quotes at the end of a line close. The same rules apply to a pipe, without prompts.
"""

import io
import sys
from collections.abc import Callable
from typing import Protocol

from sharpi.cli.output.terminal import is_yes, stdin_is_terminal
from sharpi.errors import UsageError
from sharpi.system.files import MOST_BYTES, read_line

PROMPT, CONTINUATION = "> ", "... "
_QUOTES = '"""'


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
    """Reads messages from stdin, with prompts at a terminal."""

    has_editor = False

    def __init__(self) -> None:
        self._left = MOST_BYTES  # bytes that the current message may still take
        self.is_interactive = stdin_is_terminal()
        self.status: Callable[[], str] = str
        if self.is_interactive and isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")

    def read(self, initial_text: str = "") -> str | None:
        self._left = MOST_BYTES
        return message_of(self._line)

    def confirm(self, question: str) -> bool:
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
    """Reads one message, which may be a block or continued; None at the end of the input."""
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
