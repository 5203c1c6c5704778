"""Opens a model for a command, with a progress bar at a terminal."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from sharpi.cli.output.terminal import print_note
from sharpi.cli.ranks import follows, joined
from sharpi.cli.termination import exiting_on_ctrl_c
from sharpi.config import RunConfig
from sharpi.system.process import Closing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from sharpi.engine.engine import Engine

DELAY_SECONDS = 0.5


@contextmanager
def open_engine(config: RunConfig) -> Iterator["Engine"]:
    """Loads the model and yields its engine; closes it afterwards, and prints its notes.

    If another machine receives the requests, this process runs its layers until that machine
    closes the group, and then raises click's Exit instead of yielding. Raises SharpiError.
    """
    with exiting_on_ctrl_c():
        from sharpi.engine.loader import load_engine

    with joined(config) as cluster_loader:
        with ProgressBar() as bar:
            engine = load_engine(config, on_progress=bar.show, share=cluster_loader)
        try:
            _note_all(engine.notes)
            if cluster_loader is not None and follows(config):
                cluster_loader.follow(engine.runner, engine.model_config.hidden_size)
                raise click.exceptions.Exit
            yield engine
        finally:
            engine.close()
            _note_all(engine.exit_notes)


def _note_all(lines: Iterable[str]) -> None:
    for line in lines:
        print_note(line)


class ProgressBar(Closing):
    """A bar on stderr that appears after half a second of work, at a terminal only."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def show(self, stage: str, fraction: float) -> None:
        """Shows the current stage, and the fraction of the total work that is done, 0 to 1."""
        if self._bar is None and self._is_due():
            self._appear()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=stage, completed=fraction)

    def _is_due(self) -> bool:
        return sys.stderr.isatty() and time.monotonic() - self._start > DELAY_SECONDS

    def _appear(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=1.0)
        self._bar.start()

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
