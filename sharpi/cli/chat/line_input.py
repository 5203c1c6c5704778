"""Reads what the user types in a chat: lines with history, and messages of several lines.

A trailing backslash continues a message on the next line; three double quotes open a block that
three double quotes at the end of a line close. The same rules apply to a pipe, without prompts.
"""

import atexit
import io
import os
import sys
from contextlib import suppress
from pathlib import Path

from sharpi.cli.output.terminal import stdin_is_terminal

PROMPT, CONTINUATION = "> ", "... "
_QUOTES = '"""'
_HISTORY_LENGTH = 1000


class LineInput:
    """Reads messages from stdin, with line editing at a terminal."""

    def __init__(self) -> None:
        self.is_interactive = stdin_is_terminal()
        if self.is_interactive:
            _keep_history(history_path())
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")

    def read(self) -> str | None:
        """Returns the next message, or None at the end of the input; raises KeyboardInterrupt."""
        line = self._line(PROMPT)
        if line is None:
            return None
        if line.lstrip().startswith(_QUOTES):
            return self._block(line.lstrip().removeprefix(_QUOTES))
        return self._continued(line)

    def _continued(self, line: str) -> str:
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            more = self._line(CONTINUATION)
            if more is None:
                break
            lines.append(more)
        return "\n".join(lines)

    def _block(self, first: str) -> str:
        lines, more = [], first
        while not more.rstrip().endswith(_QUOTES):
            lines.append(more)
            next_line = self._line(CONTINUATION)
            if next_line is None:
                return "\n".join(lines).strip("\n")
            more = next_line
        lines.append(more.rstrip().removesuffix(_QUOTES))
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str | None:
        if not self.is_interactive:
            return _piped_line()
        try:
            if sys.stdout.isatty():
                return input(prompt)
            print(prompt, end="", file=sys.stderr, flush=True)
            return input()
        except EOFError:
            print(file=sys.stderr)
            return None


def _piped_line() -> str | None:
    data = sys.stdin.buffer.readline()
    return data.decode("utf-8", "replace").rstrip("\r\n") if data else None


def history_path() -> Path:
    """Returns the history file in the state folder of the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sharpi" / "history"


def _keep_history(path: Path) -> None:
    """Reads the history now and writes it at exit; a chat also works without one."""
    with suppress(ImportError, OSError):
        import readline

        readline.set_history_length(_HISTORY_LENGTH)
        atexit.register(_write_history, path)
        readline.read_history_file(path)


def _write_history(path: Path) -> None:
    import readline

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
