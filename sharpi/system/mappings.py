"""Reads from /proc how this process's memory is mapped: address ranges and whether writable."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_MAPS = Path("/proc/self/maps")


class Mapping(Struct, frozen=True):
    """One mapping of the process's memory: addresses from `begin` to before `end`."""

    begin: int
    end: int
    is_writable: bool

    def has(self, begin: int, end: int) -> bool:
        """Returns True if the addresses from `begin` to before `end` are within the mapping."""
        return self.begin <= begin and end <= self.end


def mappings() -> tuple[Mapping, ...]:
    """Returns all mappings of the process, in order of addresses; empty if /proc has none."""
    try:
        text = _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(_parsed(text))


def _parsed(text: str) -> Iterator[Mapping]:
    for line in text.splitlines():
        addresses, permissions = line.split(maxsplit=2)[:2]
        begin, _, end = addresses.partition("-")
        yield Mapping(int(begin, 16), int(end, 16), "w" in permissions)


def mapping_of(found: tuple[Mapping, ...], begin: int, end: int) -> Mapping:
    """Returns the mapping in `found` that contains the addresses from `begin` to before `end`.

    If there is none, returns a writable mapping of exactly these addresses.
    """
    return next((each for each in found if each.has(begin, end)), Mapping(begin, end, True))
