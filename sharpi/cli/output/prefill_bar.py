"""Shows how much of the prompt is computed, with tokens per second and the time left."""

import sys
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from sharpi.cli.output.interruption import interruptible
from sharpi.cli.output.loading import DELAY_SECONDS
from sharpi.system.process import Closing

if TYPE_CHECKING:
    from rich.progress import Progress

    from sharpi.engine.generation import Generation

_REFRESH_SECONDS = 0.1
_BAR_WIDTH = 12


def watched(generation: "Generation") -> Generator[str, None, None]:
    """Yields the pieces of the answer; a bar shows the progress of prefill before the first.

    SIGINT and SIGTERM interrupt a step; see `interruptible`.
    """
    pieces = iter(generation)
    with interruptible(generation):
        with PrefillBar(generation):
            first = next(pieces, None)
        if first is not None:
            yield first
            yield from pieces


class PrefillBar(Closing):
    """A progress bar on stderr, drawn by a thread after half a second, at a terminal only."""

    def __init__(self, generation: "Generation") -> None:
        self._generation = generation
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start = time.monotonic()
        self._done = 0
        if sys.stderr.isatty():
            self._thread.start()

    def close(self) -> None:
        """Removes the bar from the screen, and waits for the thread that draws it."""
        self._has_ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        if self._has_ended.wait(DELAY_SECONDS):
            return
        bar = _new_bar()
        task = bar.add_task("", total=None, counts="")
        with bar:
            while True:
                total = self._generation.timings.num_prompt_tokens
                self._done = max(self._done, self._generation.num_prefilled)
                counts = self._counts(total)
                bar.update(task, total=total or None, completed=self._done, counts=counts)
                if self._has_ended.wait(_REFRESH_SECONDS):
                    return

    def _counts(self, total: int) -> str:
        """Returns tokens done and in total, tokens per second, and minutes and seconds left."""
        if not self._done:
            return f"{total} tokens"
        speed = self._done / max(time.monotonic() - self._start, 1e-9)
        seconds = round((total - self._done) / speed)
        left = f"{seconds // 60}:{seconds % 60:02} left"
        return f"{self._done}/{total}, {speed:.0f} tokens/s, {left}"


def _new_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("reading the prompt"),
        BarColumn(_BAR_WIDTH),
        TextColumn("{task.fields[counts]}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
