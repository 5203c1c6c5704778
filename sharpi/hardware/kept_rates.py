"""Keeps measured rates of this machine, so that plans agree with each other and begin at once.

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
    """Bytes per second, measured at a time in seconds since 1970."""

    bytes_per_second: float
    at: float
    is_disturbed: bool


def kept_rate(name: str, measure: Callable[[], float]) -> float:
    """Returns the rate `name` in bytes per second: as kept, or as `measure` returns it now."""
    known = _read()
    found = known.get(name)
    is_recent = found is not None and 0 <= time.time() - found.at < _KEPT_SECONDS
    if found is not None and is_recent and not found.is_disturbed:
        return found.bytes_per_second
    rate = measure()
    is_disturbed = os.getloadavg()[0] > _BUSY_SHARE * len(usable_cores())
    if found is not None and is_recent and is_disturbed:
        rate = max(rate, found.bytes_per_second)
    with suppress(OSError):  # it is measured again next time
        _path().parent.mkdir(parents=True, exist_ok=True)
        kept = _read() | {name: _Rate(rate, time.time(), is_disturbed)}
        write_atomically(_path(), msgspec.json.encode(kept))
    return rate


def _read() -> dict[str, _Rate]:
    try:
        return msgspec.json.decode(_path().read_bytes(), type=dict[str, _Rate])
    except (OSError, msgspec.DecodeError):
        return {}


def _path() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder, "sharpi", "rates.json")
