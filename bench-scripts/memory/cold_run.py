"""Runs a program from a cold page cache, in a new process under a memory limit."""

import ctypes
import mmap
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contest.contestant import Contestant, Settings, Task, Timing
from memory.memory_group import MemoryGroup

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


_DROP_ALL = Path("/proc/sys/vm/drop_caches")
_LIBC = ctypes.CDLL(None, use_errno=True)


def cached_share(path: Path) -> float:
    """Returns the fraction of a file's pages in the page cache, 0 to 1.

    The user must own the file or be able to write it (mincore(2)).
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        start, flags = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        failed = _LIBC.mincore(start, ctypes.c_size_t(len(mapped)), flags)
        del view  # the mapping cannot be closed while a view exists
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float((pages & 1).mean())


def drop_cached(path: Path, tolerated: float = 0.01) -> float:
    """Drops a file's pages from the page cache; returns the fraction that stays, 0 to 1.

    If more than `tolerated` stays and the user is root, the entire page cache is dropped.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())  # unwritten pages cannot be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(path) > tolerated and os.access(_DROP_ALL, os.W_OK):
        _DROP_ALL.write_text("1")
    return cached_share(path)


def read_ahead_bytes(path: Path) -> int | None:
    """Returns the largest read-ahead, in bytes, at a fault in a mapped file; None if unknown."""
    device = os.stat(path).st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for queue in (folder / "queue", folder.parent / "queue"):  # a partition uses its disk's
        if (queue / "read_ahead_kb").exists():
            return 1024 * int((queue / "read_ahead_kb").read_text())
    return None
