"""Reservations: the RAM that this user's running processes have planned, and have not taken yet.

Each process that plans RAM keeps a file while it runs. Plans are made one after the other, so that
two that start together do not plan with the same memory.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from sharpi.system.files import runtime_folder
from sharpi.system.process import Closing
from sharpi.system.process_files import ProcessFile, facts_of_processes, try_lock

_SUFFIX = ".memory"
_LOCK_SECONDS = 5.0  # then a process that plans has hung, and is not waited for
MACHINE = ""  # stands for the whole machine where memory is counted by cgroups


class Plan(Struct, frozen=True):
    """The memory that a process has planned beside what it had before, in bytes."""

    pid: int
    num_bytes: int
    before: int
    groups: tuple[str, ...]  # folders of the cgroups that limit the process

    @property
    def outstanding(self) -> int:
        """The bytes that the process has planned and not taken yet."""
        return max(0, self.num_bytes - max(0, held_bytes(self.pid) - self.before))


class Reservation(Closing):
    """What this process has reserved; `close` ends it, as does the end of the process."""

    def __init__(self, file: ProcessFile | None) -> None:
        self._file = file

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


@contextmanager
def planning() -> Iterator[None]:
    """Makes other processes of this user wait with their plans until the end of the context.

    Waits for them for a few seconds. Goes on without a lock where no file can be written.
    """
    lock = _waited_for_lock()
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def _waited_for_lock() -> BinaryIO | None:
    try:
        file = (runtime_folder() / f"lock{_SUFFIX}").open("ab")
    except OSError:
        return None
    end = time.monotonic() + _LOCK_SECONDS
    while not try_lock(file) and time.monotonic() < end:
        time.sleep(0.01)
    return file


def reserved() -> Mapping[str, int]:
    """Returns the bytes that others have yet to take, by cgroup folder; MACHINE has all."""
    found: Counter[str] = Counter()
    with suppress(OSError):
        for plan in facts_of_processes(f"*[0-9]{_SUFFIX}", Plan):
            if plan.pid != os.getpid():
                found.update(dict.fromkeys((MACHINE, *plan.groups), plan.outstanding))
    return found


def reserve(num_bytes: int, groups: tuple[str, ...]) -> Reservation:
    """Reserves memory for this process, within cgroups; where no file can be written, in vain."""
    pid = os.getpid()
    try:
        plan = Plan(pid, num_bytes, held_bytes(pid), groups)
        return Reservation(ProcessFile(f"{pid}-{time.monotonic_ns()}{_SUFFIX}", plan))
    except OSError:
        return Reservation(None)


def held_bytes(pid: int) -> int:
    """Returns the bytes of RAM that a process has for itself alone; 0 if it is not there."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
