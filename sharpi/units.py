"""Parses and formats sizes in bytes such as `12GiB`, large counts, and times."""

import re
import time

from sharpi.errors import UsageError

_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_size(text: str) -> int:
    """Returns the bytes in a text such as `12GiB`, `2.5 GB` or `4096`; raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None or (match[3] and not match[2]):
        raise UsageError(f"not a size: {text!r}; write it like 12GiB, 2.5GB or 800MB")
    factors = _BINARY if match[3] else _FACTORS
    return int(float(match[1]) * factors[match[2]])


def format_bytes(count: int) -> str:
    """Returns a size in binary units with one decimal: `4.6 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_count(count: int) -> str:
    """Returns a large count with a decimal prefix: `30.5 B`, `21.0 M`."""
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return str(count)


def plural(count: int, noun: str) -> str:
    """Returns a number with its noun: `1 token`, `2 tokens`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def format_time(seconds: float) -> str:
    """Returns seconds since 1970 as local time: `2026-11-28 22:20`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
