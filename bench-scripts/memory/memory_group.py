"""MemoryGroup: a cgroup, version 1 or 2, that limits the memory of the programs in it."""

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sharpi.errors import UsageError
from sharpi.system.process import Closing

_MOUNTS = Path("/proc/mounts")
_ENTER = 'echo $$ > "$0" && exec "$@"'  # the shell enters the group, then becomes the program
_REMOVAL_SECONDS = 5.0


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchy of cgroups in which memory groups can be created."""

    folder: Path
    limits: tuple[str, str]  # names of the files that limit RAM and, if it exists, swap
    swap_is_extra: bool  # the second file limits swap alone, rather than RAM and swap together


def find_hierarchy(mounts: Path = _MOUNTS) -> Hierarchy:
    """Returns the mounted memory controller (cgroups(7)); raises UsageError if there is none."""
    for line in mounts.read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        place = Path(folder)
        if kind == "cgroup" and "memory" in options.split(","):
            files = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            return Hierarchy(place, files, swap_is_extra=False)
        if kind == "cgroup2" and "memory" in _words(place / "cgroup.controllers"):
            return Hierarchy(place, ("memory.max", "memory.swap.max"), swap_is_extra=True)
    raise UsageError("no memory cgroup is mounted here, so nothing can be limited; see cgroups(7)")


def launcher_into(folder: Path) -> tuple[str, ...]:
    """Returns a command that runs the command in its further arguments within a cgroup."""
    return ("sh", "-c", _ENTER, str(folder / "cgroup.procs"))


class MemoryGroup(Closing):
    """A new cgroup with `limit` bytes of memory and no swap; leaving the context removes it.

    Only one can exist at a time, since two measurements would share the disk and the page cache.
    Raises UsageError if another one exists, or if this user cannot create one.
    """

    def __init__(self, limit: int, hierarchy: Hierarchy | None = None) -> None:
        place = hierarchy or find_hierarchy()
        self.folder = place.folder / f"sharpi-{os.getpid()}"
        self._lock = _lock(place.folder)
        try:
            _delegate_memory(place.folder)
            self.folder.mkdir()
            self._limit(limit, place)
        except OSError as error:
            self.close()
            raise UsageError(
                f"{place.folder}: no memory limit can be set ({error.strerror}); run this as root"
            ) from None

    def _limit(self, limit: int, place: Hierarchy) -> None:
        memory, swap = (self.folder / name for name in place.limits)
        memory.write_text(str(limit))
        if swap.exists():
            swap.write_text("0" if place.swap_is_extra else str(limit))

    @property
    def launcher(self) -> tuple[str, ...]:
        """A command that runs the command in its further arguments within the cgroup."""
        return launcher_into(self.folder)

    def close(self) -> None:
        """Kills the processes that still run in the cgroup, and removes it."""
        os.close(self._lock)
        end = time.monotonic() + _REMOVAL_SECONDS
        while self.folder.exists() and time.monotonic() < end:
            for process_id in _words(self.folder / "cgroup.procs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process_id), signal.SIGKILL)
            with contextlib.suppress(OSError):  # busy until the last process is really gone
                self.folder.rmdir()
                return
            time.sleep(0.05)


def _delegate_memory(folder: Path) -> None:
    """Enables the memory controller in the parent group, as cgroups of version 2 require."""
    control = folder / "cgroup.subtree_control"
    if control.exists() and "memory" not in _words(control):
        control.write_text("+memory")


def _lock(folder: Path) -> int:
    """Locks a folder and returns the file descriptor that holds the lock.

    The lock ends when the descriptor is closed, or the process ends. Raises UsageError if another
    process holds it.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(
            "another measurement under a memory limit is running; wait until it has ended"
        ) from None
    return lock


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


_BLKIO = Path("/sys/fs/cgroup/blkio")


class DiskGroup(Closing):
    """A cgroup whose programs read at most `rate` bytes per second from the disk with `path`.

    Reads through the page cache may be faster. Raises UsageError if the limit cannot be set.
    """

    def __init__(self, rate: int, path: Path) -> None:
        device = os.stat(path).st_dev
        self.folder = _BLKIO / f"sharpi-{os.getpid()}"
        rule = f"{os.major(device)}:{os.minor(device)} {rate}"
        try:
            self.folder.mkdir()
            self._limit(rule)
        except OSError as error:
            raise UsageError(
                f"{_BLKIO}: no disk can be slowed ({error.strerror}); it takes cgroups of version 1"
                " and root"
            ) from None

    def _limit(self, rule: str) -> None:
        try:
            (self.folder / "blkio.throttle.read_bps_device").write_text(rule)
        except OSError:
            self.folder.rmdir()
            raise

    @property
    def launcher(self) -> tuple[str, ...]:
        """A command that runs the command in its further arguments within the cgroup."""
        return launcher_into(self.folder)

    def close(self) -> None:
        """Removes the cgroup; all its programs must have ended."""
        self.folder.rmdir()
