"""Fetches models: bars with bytes and rate on a terminal, two lines per file elsewhere."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from sharpi.cli.output.terminal import print_note, print_stderr
from sharpi.cli.termination import INTERRUPTED
from sharpi.hub.catalogue import ModelName
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sharpi.hub.blobs import Watcher
    from sharpi.hub.pull import Pulled


class DownloadLines:
    """A download Watcher for pipes and log files: a line when a file begins and when it ends."""

    def __init__(self) -> None:
        self._path = ""

    def note(self, text: str) -> None:
        print_note(text)

    def begin(self, path: str, size: int, received: int) -> None:
        self._path = path
        print_stderr(f"fetching {path} ({format_bytes(size)}){_resumed(received)}")

    def advance(self, count: int) -> None:
        """Prints nothing, since a log file needs no progress."""

    def end(self) -> None:
        print_stderr(f"{self._path} is complete, checksum verified")


class DownloadBars:
    """A download Watcher for terminals: a bar for each file with bytes, rate and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class Speed(ProgressColumn):
            """The received bytes per second, in the units of `format_bytes`."""

            def render(self, task: "Task") -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{format_bytes(int(speed))}/s")

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            Speed(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        self.bars.console.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)

    def begin(self, path: str, size: int, received: int) -> None:
        if received:
            self.note(f"{path}{_resumed(received)}")
        name = path.rsplit("/", 1)[-1]
        self._task = self.bars.add_task(name, total=size, completed=received)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self.bars.advance(self._task, count)

    def end(self) -> None:
        """Leaves the full bar on the screen."""
        self._task = None


@contextmanager
def download_display() -> Iterator["Watcher"]:
    """Yields bars if stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield DownloadLines()
        return
    display = DownloadBars()
    with display.bars:
        yield display


def _resumed(received: int) -> str:
    return f", resuming at {format_bytes(received)}" if received else ""


def fetch(name: ModelName) -> "Pulled":
    """Downloads the missing files of a model; raises HubError, and click's Exit after Ctrl-C."""
    from sharpi.hub.cache import Cache

    cache = Cache()
    from sharpi.hub.pull import Puller

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # sharpi reports everything itself
    try:
        with download_display() as display:
            return Puller(cache, display).pull(name)
    except KeyboardInterrupt:
        print_stderr(f"stopped; `sharpi pull {name}` resumes it")
        raise typer.Exit(INTERRUPTED) from None
