"""Stores the messages that a user typed in a file that only its owner can read.

A line of the file is one entry. A newline in an entry is stored as U+2028, the line separator.
"""

import os
from contextlib import suppress
from pathlib import Path

_MOST_ENTRIES = 1000
_NEWLINE = "\u2028"


def history_path() -> Path:
    """Returns the history file in the state folder of the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sharpi" / "history"


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
