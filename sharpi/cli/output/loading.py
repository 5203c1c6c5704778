"""Opens a model and reads prompts, with progress bars at a terminal; signals interrupt a step."""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import typer

from sharpi.cli.output.terminal import print_note
from sharpi.cli.ranks import follows, join
from sharpi.cli.termination import exiting_on_ctrl_c, uninterrupted
from sharpi.settings import RunConfig
from sharpi.system.process import Closing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from sharpi.engine.engine import Engine, Generation


DELAY_SECONDS = 0.5
_BAR_WIDTH = 12


@contextmanager
def open_engine(config: RunConfig) -> Iterator["Engine"]:
    """Loads the model and yields its engine; closes it afterwards, and prints its notes.

    If another machine receives the requests, this process runs its layers until that machine
    closes the group, and then raises Typer's Exit instead of yielding. Raises SharpiError.
    """
    with exiting_on_ctrl_c():
        from sharpi.engine.loader import load_engine

    with (
        nullcontext() if config.cluster is None else join(config, config.cluster) as cluster_loader
    ):
        with ProgressBar() as bar:
            engine = load_engine(config, on_progress=bar.show, share=cluster_loader)
        try:
            _note_all(engine.notes)
            if cluster_loader is not None and follows(config):
                cluster_loader.follow(engine.runner, engine.model_config.hidden_size)
                raise typer.Exit
            yield engine
        finally:
            _close(engine)


def _close(engine: "Engine") -> None:
    """Closes the engine, which writes its files, however many signals arrive meanwhile."""
    try:
        with uninterrupted():
            engine.close()
            _note_all(engine.exit_notes)
    except (KeyboardInterrupt, SystemExit):  # also if a signal came before they were delayed
        with uninterrupted():
            engine.close()
        raise


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
        is_due = sys.stderr.isatty() and time.monotonic() - self._start > DELAY_SECONDS
        if self._bar is None and is_due:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            what, left = TextColumn("{task.description}", markup=False), TextColumn("left")
            self._bar = Progress(
                *(what, BarColumn(_BAR_WIDTH), TaskProgressColumn(), TimeRemainingColumn(), left),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
            )
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=stage, completed=fraction)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()


_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(generation: "Generation") -> Iterator[None]:
    """Lets SIGINT and SIGTERM interrupt a generation's steps, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_watch, args=(reader, generation), daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)
        generation.interrupt(wanted=False)


def _watch(reader: int, generation: "Generation") -> None:
    """Reads signal numbers from a pipe, and interrupts the generation at SIGINT and SIGTERM."""
    while numbers := os.read(reader, 64):
        if any(number in _ENDING for number in numbers):
            generation.interrupt()


_REFRESH_SECONDS = 0.1


def watched(generation: "Generation") -> Generator[str, None, None]:
    """Yields an interruptible answer's pieces; a bar shows the progress before the first one."""
    pieces = iter(generation)
    with interruptible(generation):
        with PrefillBar(generation):
            first = next(pieces, None)
        if first is not None:
            yield first
            yield from pieces


class PrefillBar(Closing):
    """A progress bar of the prompt, which a thread draws at a terminal."""

    def __init__(self, generation: "Generation") -> None:
        self._generation = generation
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if sys.stderr.isatty():
            self._thread.start()

    def close(self) -> None:
        """Removes the bar from the screen, and waits for the thread that draws it."""
        self._has_ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        start, done = time.monotonic(), 0
        with ProgressBar() as bar:
            while not self._has_ended.wait(_REFRESH_SECONDS):
                total = self._generation.timings.num_prompt_tokens
                done = max(done, self._generation.num_prefilled)
                speed = f"at {done / (time.monotonic() - start):.0f} tokens/s" if done else "tokens"
                bar.show(f"reading the prompt, {done}/{total} {speed}", done / max(1, total))
