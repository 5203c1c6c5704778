"""Reads the total and the free RAM, the limits of memory cgroups, and waits for memory."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from sharpi.system.reservations import MACHINE

_NO_LIMIT = 1 << 60  # above this, cgroup version 1 means no limit
_PROC = Path("/proc")
_PIECE = 1 << 16
_NOTHING: Mapping[str, int] = {}


class MemoryInfo(Struct, frozen=True):
    """The RAM of the machine, in bytes."""

    total: int
    free: int  # available within the limit; page cache counts as free
    limit: int | None = None  # the tightest limit of the process's cgroups; None without one
    huge_page_size: int = 0


def probe_memory(proc: Path = _PROC) -> MemoryInfo:
    """Returns the kernel's figures; without /proc, all physical memory counts as free."""
    return MemoryGauge(proc).read()


class MemoryGauge:
    """Reads the RAM again and again; `folders` of cgroups with limits are looked up once."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc, groups = proc, tuple(_memory_groups(proc))
        self._groups = [(folder, files) for folder, files in groups if _limited(folder, files)]
        self.folders = tuple(str(folder) for folder, _ in self._groups)
        pressure = (folder / "memory.pressure" for folder, _ in groups)
        known = (path for path in pressure if path.exists())
        self._pressure = next(known, proc / "pressure/memory")

    def read(self, reserved: Mapping[str, int] = _NOTHING) -> MemoryInfo:
        """Returns the kernel's figures, less the bytes that are `reserved` by cgroup folder."""
        info = _memory_info(self._proc)
        total = info.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = [info.get("MemAvailable", total) - reserved.get(MACHINE, 0)]
        limits = []
        for folder, files in self._groups:
            if group := _limited(folder, files):
                limits.append(group.limit)
                free.append(group.free - reserved.get(str(folder), 0))
        return MemoryInfo(
            total=total,
            free=max(0, min(free)),
            limit=min(limits, default=None),
            huge_page_size=info.get("Hugepagesize", 0),
        )

    def stalled(self) -> float:
        """Returns the seconds, since ever, in which processes waited for memory (PSI).

        They are those of the process's cgroup where the kernel counts them, else of the machine; 0
        where it counts none.
        """
        for line in _lines(self._pressure):
            kind, *fields = line.split()
            if kind == "some":
                return int(dict(field.split("=") for field in fields)["total"]) / 1e6
        return 0.0


_FIELDS = ("MemTotal:", "MemAvailable:", "Hugepagesize:")


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
    return {f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if f[0] in _FIELDS}


def _memory_groups(proc: Path) -> Iterator[tuple[Path, _Files]]:
    """Yields the folders of the process's memory cgroup and its parents, with their files."""
    for folder, version in _cgroups(proc, "memory"):
        yield folder, _VERSION_1 if version == 1 else _VERSION_2


def _cgroups(proc: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yields the folders of the process's cgroup and its parents, with their version, 1 or 2."""
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from ((each, 2) for each in _folders(proc, "cgroup2", "", path))
        elif controller in controllers.split(","):
            yield from ((each, 1) for each in _folders(proc, "cgroup", controller, path))


def _folders(proc: Path, kind: str, controller: str, path: str) -> Iterator[Path]:
    """Yields the folders of the cgroup `path` and of its parents, as far as they are mounted."""
    for root, mount in _mounts(proc, kind, controller):
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        yield from (mount / each for each in (inside, *inside.parents))


def _mounts(proc: Path, kind: str, controller: str) -> Iterator[tuple[str, Path]]:
    """Yields the mounted cgroups of one hierarchy with their mount points; see proc(5)."""
    for line in _lines(proc / "self/mountinfo"):
        place, _, source = line.partition(" - ")
        fields, (found, _, options) = place.split(), source.split(maxsplit=2)
        if found == kind and (not controller or controller in options.split(",")):
            yield fields[3], Path(fields[4])


def cpu_quota(proc: Path = _PROC) -> int | None:
    """Returns the cores that cgroups allow, rounded down, at least 1; None without a quota."""
    files = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
    cores = []
    for folder, version in _cgroups(proc, "cpu"):
        words = " ".join(word for name in files[version] for word in _lines(folder / name)).split()
        if len(words) == 2 and words[0].isdecimal():  # microseconds; not "max" or -1
            cores.append(max(1, int(words[0]) // int(words[1])))
    return min(cores, default=None)


def _limited(folder: Path, files: _Files) -> _Group | None:
    """Returns the limit and use of a cgroup; None if it has no limit."""
    limits = [_number(folder / name) for name in files.limits]
    limit = min((each for each in limits if each is not None), default=_NO_LIMIT)
    return _Group(limit, _used(folder, files)) if limit < _NO_LIMIT else None


def _used(folder: Path, files: _Files) -> int:
    usage = _number(folder / files.usage) or 0
    fields = (line.split() for line in _lines(folder / "memory.stat"))
    return max(0, usage - sum(int(f[1]) for f in fields if len(f) == 2 and f[0] in files.cache))


def _number(path: Path) -> int | None:
    """Returns the number in a file; None if the file says "max" or does not exist."""
    text = " ".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    """Returns the lines of a file of the kernel; pathlib would take five times as long."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return []
    try:
        return b"".join(iter(lambda: os.read(file, _PIECE), b"")).decode().splitlines()
    except OSError:
        return []
    finally:
        os.close(file)
