"""Converts ExpertStats to JSON and back; checks the JSON strictly, as users may give any file."""

import json
from typing import Any

import msgspec
from msgspec import to_builtins

from sharpi.errors import StatsFileError
from sharpi.experts.stats.counts import LayerStats, PhaseCounts
from sharpi.experts.stats.stats import ExpertStats

FORMAT = "sharpi expert stats"
VERSION = 2
_MOST = 1 << 63
_SUMS = (
    "accesses", "hits", "late", "loads", "computed", "remote", "mapped", "bytes_loaded",
    "stall_seconds",
)  # fmt: skip

Plain = dict[str, Any]


def to_dict(stats: ExpertStats) -> Plain:
    """Returns the stats as plain types, with sums and rates added for other programs."""
    return {"format": FORMAT, "version": VERSION} | _tier(stats)


def _tier(stats: ExpertStats) -> Plain:
    plain: Plain = to_builtins(stats)
    plain |= _sums(stats.total) | {"bytes_read": stats.bytes_read, "fills": stats.fills}
    plain["prompt"], plain["decode"] = _phase(stats.prompt), _phase(stats.decode)
    for name, count in (("before_pin", stats.before_pin), ("after_pin", stats.after_pin)):
        plain[name] = None if count is None else count._asdict() | {"hit_rate": count.rate}
    for layer, known in zip(plain["layers"], stats.layers, strict=True):
        _extend(layer, known)
    if stats.prediction is not None:
        plain["prediction"]["recall"] = stats.prediction.recall
        plain["prediction"]["precision"] = stats.prediction.precision
    plain["below"] = None if stats.below is None else _tier(stats.below)
    return plain


def _extend(plain: Plain, layer: LayerStats) -> None:
    plain |= _sums(layer.total)
    plain["prompt"], plain["decode"] = _phase(layer.prompt), _phase(layer.decode)
    plain["top"] = [each._asdict() for each in layer.top()]


def _phase(counts: PhaseCounts) -> Plain:
    plain: Plain = to_builtins(counts)
    return plain | {"hit_rate": counts.hit_count.rate}


def _sums(counts: PhaseCounts) -> Plain:
    sums = {name: getattr(counts, name) for name in _SUMS}
    return sums | {"hit_rate": counts.hit_count.rate}


def to_json(stats: ExpertStats) -> str:
    """Returns the stats as one line of JSON."""
    return json.dumps(to_dict(stats), ensure_ascii=False)


def from_json(text: str, source: str) -> ExpertStats:
    """Returns the stats in a text that `to_json` wrote.

    Raises StatsFileError, which names `source`, for any other text.
    """
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        raise StatsFileError(_not_stats(source)) from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StatsFileError(_not_stats(source))
    if plain.get("version") != VERSION:
        raise StatsFileError(
            f"{source}: expert stats of version {plain.get('version')!r}; this sharpi reads"
            f" version {VERSION}"
        )
    try:
        stats = _stats(json.loads(text))
        _refuse_other(json.loads(to_json(stats)), plain, "stats")
        return stats
    except (KeyError, TypeError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise StatsFileError(
            f"{source}: damaged expert stats ({error}); record them anew"
        ) from None


def _not_stats(source: str) -> str:
    return f"{source}: holds no expert stats; --expert-stats PATH records them"


def _stats(plain: Plain) -> ExpertStats:
    """Returns the stats in `plain`; ignores the sums and rates, which follow from the counts."""
    for name in ("before_pin", "after_pin"):
        count = plain[name]
        plain[name] = None if count is None else [count["accesses"], count["hits"]]
    _refuse_beyond(plain)
    below = plain.pop("below")
    stats = msgspec.convert(plain, ExpertStats)
    for layer in stats.layers:
        if len(layer.uses) != stats.num_experts:
            raise ValueError(f"not the uses of {stats.num_experts} experts")
    return stats if below is None else msgspec.structs.replace(stats, below=_stats(below))


def _refuse_other(right: Any, found: Any, name: str) -> None:
    """Raises ValueError if `found`, from a file, differs from `right`, computed from its counts.

    Both hold counts, sums and rates; `name` is their key.
    """
    if isinstance(right, dict) and isinstance(found, dict):
        for key in right:
            _refuse_other(right[key], found[key], key)
    elif isinstance(right, list) and isinstance(found, list) and len(right) == len(found):
        for each, other in zip(right, found, strict=True):
            _refuse_other(each, other, name)
    elif isinstance(right, dict | list):
        raise ValueError(f"{name} are not those of the counts")
    elif right != found:
        raise ValueError(f"{name} is {found!r}, but the counts give {right!r}")


def _refuse_beyond(value: object) -> None:
    """Raises ValueError if any number in `value` is negative or 2^63 or more."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _refuse_beyond(each)
    elif isinstance(value, int | float) and not 0 <= value < _MOST:
        raise ValueError(f"a count is {value!r}")
