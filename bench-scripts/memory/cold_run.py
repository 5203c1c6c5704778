"""Runs a program from a cold page cache, in a new process under a memory limit."""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contest.contestant import Contestant, Settings, Task, Timing
from memory.memory_group import MemoryGroup
from memory.page_cache import drop_cached

_MOST_CACHED = 0.01  # the most of a file that may be cached for a run to count as cold


@dataclass(frozen=True)
class Entry:
    """A program to be compared: its name, Python interpreter, worker script and settings."""

    name: str
    python: str
    worker: str
    settings: Settings


@dataclass(frozen=True)
class Test:
    """A test that every program runs: its name and the worker's task."""

    name: str
    task: Task


@dataclass(frozen=True)
class Run:
    """The result of one test on one program, from a cold page cache."""

    test: str
    contestant: str
    num_tokens: int
    timing: Timing
    load_seconds: float  # until the model was ready
    cached_share: float  # part of the files that was cached before, 0 to 1
    description: dict[str, Any]  # the worker's description of the program
    disk_rates: tuple[float, ...] = ()  # bytes per second of direct reads right before and after

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.timing.seconds

    @property
    def disk_bytes_per_second(self) -> float:
        """The mean of the disk's rates before and after the run, since shared disks vary."""
        return statistics.fmean(self.disk_rates)


def run_cold(entry: Entry, test: Test, group: MemoryGroup, parts: Sequence[Path]) -> Run:
    """Drops the model's files from the page cache, and runs a test on a new process of the program.

    Prints a warning if pages stay in the page cache.
    """
    cached = max(drop_cached(part, _MOST_CACHED) for part in parts)
    if cached > _MOST_CACHED:
        print(
            f"{entry.name}, {test.name}: {100 * cached:.0f} % of the file stayed in the page cache;"
            " is another program using it?",
            file=sys.stderr,
        )
    start = time.perf_counter()
    contestant = Contestant(
        entry.name, entry.python, entry.worker, entry.settings, launcher=group.launcher
    )
    load_seconds = time.perf_counter() - start
    timing = contestant.run(test.task)
    contestant.close()
    return Run(
        test=test.name,
        contestant=entry.name,
        num_tokens=len(test.task.ids),
        timing=timing,
        load_seconds=load_seconds,
        cached_share=cached,
        description=contestant.description,
    )
