"""How a download looks: a bar with bytes and rate on a terminal, a line for each file elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sharpi.cli.output.terminal import note, say
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sharpi.hub.watcher import Watcher


class DownloadLines:
    """A line when a file begins and one when it is there; a Watcher for pipes and log files."""

    def __init__(self) -> None:
        self._path = ""

    def note(self, text: str) -> None:
        """Something was decided, or could not be done as asked."""
        note(text)

    def begin(self, path: str, size: int, received: int) -> None:
        """A file of `size` bytes, of which an earlier try received so many."""
        self._path = path
        say(f"fetching {path} ({format_bytes(size)}){_resumed(received)}")

    def advance(self, count: int) -> None:
        """Nothing that a log file need know."""

    def end(self) -> None:
        """All of it is there and was checked."""
        say(f"{self._path} is there, checksum verified")


class DownloadBars:
    """A bar for each file with bytes, rate and time left; a Watcher for people."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        """Something was decided, or could not be done as asked."""
        self.bars.console.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)

    def begin(self, path: str, size: int, received: int) -> None:
        """A file of `size` bytes, of which an earlier try received so many."""
        if received:
            self.note(f"{path}{_resumed(received)}")
        name = path.rsplit("/", 1)[-1]
        self._task = self.bars.add_task(name, total=size, completed=received)

    def advance(self, count: int) -> None:
        """So many more bytes of it."""
        if self._task is not None:
            self.bars.advance(self._task, count)

    def end(self) -> None:
        """The bar stays, full."""
        self._task = None


@contextmanager
def download_display() -> Iterator["Watcher"]:
    """What suits where stderr goes."""
    if not sys.stderr.isatty():
        yield DownloadLines()
        return
    display = DownloadBars()
    with display.bars:
        yield display


def _resumed(received: int) -> str:
    return f", going on from {format_bytes(received)}" if received else ""
