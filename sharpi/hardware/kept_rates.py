"""Keeps what was measured on this machine, so that plans agree with each other and begin at once.

A rate is measured again after a week, or if other programs were busy meanwhile. They only make it
lower, so until then the higher one counts.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from sharpi.hardware.info import usable_cores
from sharpi.system.files import write_atomically

_KEPT_SECONDS = 7 * 24 * 3600
_BUSY_SHARE = 0.5  # of the cores that run something, on average


class _Rate(Struct, frozen=True):
    """A rate, often in bytes per second, measured at a time in seconds since 1970."""

    bytes_per_second: float
    at: float
    is_disturbed: bool


def kept_rate(name: str, measure: Callable[[], float]) -> float:
    """Returns the rate `name` in bytes per second: as kept, or as `measure` returns it now."""
    found = _recent().get(name)
    if found is not None and not found.is_disturbed:
        return found.bytes_per_second
    rate = measure()
    is_disturbed = is_busy(_BUSY_SHARE)
    if found is not None and is_disturbed:
        rate = max(rate, found.bytes_per_second)
    keep(name, rate, is_disturbed=is_disturbed)
    return rate


def is_busy(share: float) -> bool:
    """Returns True if more than a share of the cores ran something, on average, of late."""
    return os.getloadavg()[0] > share * len(usable_cores())


def recent_rates() -> dict[str, float]:
    """Returns the rates that were kept at most a week ago, by name."""
    return {name: kept.bytes_per_second for name, kept in _recent().items()}


def known_figures(beginning: str) -> dict[str, float]:
    """Returns all that is kept under names with this beginning, by the rest of the name."""
    return {
        name.removeprefix(beginning): found.bytes_per_second
        for name, found in _read().items()
        if name.startswith(beginning)
    }


def keep(name: str, rate: float, *, is_disturbed: bool = False) -> None:
    """Keeps a rate; where that fails, it is measured again next time."""
    with suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True)
        kept = _read() | {name: _Rate(rate, time.time(), is_disturbed)}
        write_atomically(_path(), msgspec.json.encode(kept))


def _recent() -> dict[str, _Rate]:
    now = time.time()
    return {name: kept for name, kept in _read().items() if 0 <= now - kept.at < _KEPT_SECONDS}


def _read() -> dict[str, _Rate]:
    try:
        return msgspec.json.decode(_path().read_bytes(), type=dict[str, _Rate])
    except (OSError, msgspec.DecodeError):
        return {}


def _path() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder, "sharpi", "rates.json")
