"""How the system maps this process's memory: where a mapping ends, and whether it is writable."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_MAPS = Path("/proc/self/maps")


class Mapping(Struct, frozen=True):
    """A range of addresses that the system treats alike."""

    begin: int
    end: int
    is_writable: bool

    def has(self, begin: int, end: int) -> bool:
        """Returns True if the bytes from `begin` to before `end` are within the mapping."""
        return self.begin <= begin and end <= self.end


def mappings() -> tuple[Mapping, ...]:
    """Returns all mappings of the process, by address; none if the system does not list them."""
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
    """Returns the mapping around these bytes.

    If none is known, returns a writable mapping of just these bytes.
    """
    return next((each for each in found if each.has(begin, end)), Mapping(begin, end, True))
