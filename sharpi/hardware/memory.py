"""Reads the total and the free RAM, and the limits of memory cgroups, from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_NO_LIMIT = 1 << 60  # above this, cgroup version 1 means no limit
_PROC = Path("/proc")


class MemoryInfo(Struct, frozen=True):
    """The RAM of the machine, in bytes."""

    total: int
    free: int  # available within the limit; page cache counts as free
    limit: int | None = None  # the tightest limit of the process's cgroups; None without one
    huge_page_size: int = 0


def probe_memory(proc: Path = _PROC) -> MemoryInfo:
    """Returns the kernel's figures; without /proc, all physical memory counts as free."""
    info = _memory_info(proc)
    total = info.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = info.get("MemAvailable", total)
    groups = list(_groups(proc))
    return MemoryInfo(
        total=total,
        free=max(0, min([free, *(group.free for group in groups)])),
        limit=min((group.limit for group in groups), default=None),
        huge_page_size=info.get("Hugepagesize", 0),
    )


class _Group(Struct, frozen=True):
    """A cgroup with a memory limit, in bytes; `used` leaves out the page cache."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        return self.limit - self.used


class _Files(Struct, frozen=True):
    """The names of files in which cgroups of version 1 or 2 state limits and usage."""

    limits: tuple[str, ...]
    usage: str
    cache: tuple[str, ...]  # fields of memory.stat


_VERSION_1 = _Files(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
_VERSION_2 = _Files(
    ("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file")
)


def _memory_info(proc: Path) -> dict[str, int]:
    """Returns the bytes by field name from /proc/meminfo; empty if there is no such file."""
    fields = (line.split() for line in _lines(proc / "meminfo"))
    return {f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if len(f) == 3}


def _groups(proc: Path) -> Iterator[_Group]:
    """Yields those cgroups that limit this process's memory: its own and their parents."""
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limited(_folders(proc, "cgroup2", "", path), _VERSION_2)
        elif "memory" in controllers.split(","):
            yield from _limited(_folders(proc, "cgroup", "memory", path), _VERSION_1)


def _folders(proc: Path, kind: str, controller: str, path: str) -> Iterator[Path]:
    """Yields the folder of the cgroup `path` and its parent folders, up to the mount point.

    In a container, the outer parents may be hidden.
    """
    for root, mount in _mounts(proc, kind, controller):
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        yield from (mount / each for each in (inside, *inside.parents))


def _mounts(proc: Path, kind: str, controller: str) -> Iterator[tuple[str, Path]]:
    """Yields pairs of the cgroup that is mounted and its mount point, for one hierarchy.

    See proc(5) for the format of /proc/self/mountinfo.
    """
    for line in _lines(proc / "self/mountinfo"):
        place, _, source = line.partition(" - ")
        fields, (found, _, options) = place.split(), source.split(maxsplit=2)
        if found == kind and (not controller or controller in options.split(",")):
            yield fields[3], Path(fields[4])


def cpu_quota(proc: Path = _PROC) -> int | None:
    """Returns how many cores the quotas of the process's cgroups allow, rounded down, at least 1.

    Returns None without a quota.
    """
    cores = list[int | None]()
    files: list[tuple[Path, ...]]
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files = [(each / "cpu.max",) for each in _folders(proc, "cgroup2", "", path)]
        elif "cpu" in controllers.split(","):
            folders = _folders(proc, "cgroup", "cpu", path)
            files = [(each / "cpu.cfs_quota_us", each / "cpu.cfs_period_us") for each in folders]
        else:
            continue
        words = [" ".join(word for name in names for word in _lines(name)) for names in files]
        cores += [_cores(*each.split()) for each in words if len(each.split()) == 2]
    return min((each for each in cores if each is not None), default=None)


def _cores(quota: str, period: str) -> int | None:
    """Returns the whole cores of a quota and a period in microseconds; None without a quota."""
    return max(1, int(quota) // int(period)) if quota.isdecimal() else None


def _limited(folders: Iterator[Path], files: _Files) -> Iterator[_Group]:
    for folder in folders:
        limits = [_number(folder / name) for name in files.limits]
        limit = min((each for each in limits if each is not None), default=_NO_LIMIT)
        if limit < _NO_LIMIT:
            yield _Group(limit, _used(folder, files))


def _used(folder: Path, files: _Files) -> int:
    usage = _number(folder / files.usage) or 0
    fields = (line.split() for line in _lines(folder / "memory.stat"))
    return max(0, usage - sum(int(f[1]) for f in fields if len(f) == 2 and f[0] in files.cache))


def _number(path: Path) -> int | None:
    """Returns the number in a file; None if the file says "max" or does not exist."""
    text = " ".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
