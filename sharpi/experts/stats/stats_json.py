"""Converts ExpertStats to JSON and back; what is read is checked, since any file may be given."""

import json
from typing import Any, TypeVar

from msgspec import to_builtins

from sharpi.errors import StatsFileError
from sharpi.experts.stats.stats import ExpertStats, HitCount, LayerStats, PredictionStats

FORMAT = "sharpi expert stats"
VERSION = 1

Plain = dict[str, Any]
_Item = TypeVar("_Item")


def to_dict(stats: ExpertStats) -> Plain:
    """Returns the stats as plain types, with the rates added for other readers."""
    plain: Plain = {"format": FORMAT, "version": VERSION} | to_builtins(stats)
    plain["hit_rate"] = stats.hit_count.rate
    plain["hits"], plain["accesses"] = stats.hit_count.hits, stats.hit_count.accesses
    plain["loads"], plain["bytes_read"] = stats.loads, stats.bytes_read
    plain["stall_seconds"] = stats.stall_seconds
    for name in ("before_pin", "after_pin"):
        count: HitCount | None = getattr(stats, name)
        plain[name] = None if count is None else count._asdict() | {"hit_rate": count.rate}
    for layer, known in zip(plain["layers"], stats.layers, strict=True):
        layer["hit_rate"] = known.hit_count.rate
        layer["top"] = [each._asdict() for each in known.top()]
    if stats.prediction is not None:
        plain["prediction"]["recall"] = stats.prediction.recall
        plain["prediction"]["precision"] = stats.prediction.precision
    return plain


def to_json(stats: ExpertStats) -> str:
    """Returns the stats as one line of JSON."""
    return json.dumps(to_dict(stats), ensure_ascii=False)


def from_json(text: str, source: str) -> ExpertStats:
    """Parses a text that `to_json` wrote; raises StatsFileError naming `source`."""
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
        return _stats(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise StatsFileError(
            f"{source}: damaged expert stats ({error}); record them anew"
        ) from None


def _not_stats(source: str) -> str:
    return f"{source}: holds no expert stats; --expert-stats PATH records them"


def _stats(plain: Plain) -> ExpertStats:
    num_experts = _count(plain, "num_experts")
    return ExpertStats(
        model=_get(plain, "model", str),
        policy=_get(plain, "policy", str),
        num_experts=num_experts,
        experts_per_token=_count(plain, "experts_per_token"),
        num_tokens=_count(plain, "num_tokens"),
        layers=tuple(_layer(each, num_experts) for each in _get(plain, "layers", list)),
        before_pin=_hit_count(plain["before_pin"]),
        after_pin=_hit_count(plain["after_pin"]),
        prediction=_prediction(plain["prediction"]),
        notes=tuple(map(str, _get(plain, "notes", list))),
    )


def _layer(plain: Plain, num_experts: int) -> LayerStats:
    if len(_get(plain, "uses", list)) != num_experts:
        raise ValueError(f"not the uses of {num_experts} experts")
    counts = ("layer", "num_slots", "accesses", "hits", "late", "loads", "bytes_read")
    return LayerStats(
        **{name: _count(plain, name) for name in counts},
        stall_seconds=_seconds(plain, "stall_seconds"),
        uses=_counts(plain, "uses"),
        pinned=_counts(plain, "pinned"),
    )


def _prediction(plain: Plain | None) -> PredictionStats | None:
    if plain is None:
        return None
    counts = (
        "guessed", "used", "right", "prefetched", "prefetch_used", "late", "dropped", "failed",
        "bytes_moved", "wasted_bytes",
    )  # fmt: skip
    return PredictionStats(
        predictor=_get(plain, "predictor", str),
        is_on=_get(plain, "is_on", bool),
        **{name: _count(plain, name) for name in counts},
    )


def _hit_count(plain: Plain | None) -> HitCount | None:
    return None if plain is None else HitCount(_count(plain, "accesses"), _count(plain, "hits"))


def _get(plain: Plain, name: str, kind: type[_Item]) -> _Item:
    value = plain[name]
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r}")
    return value


def _count(plain: Plain, name: str) -> int:
    return _checked(plain[name], name)


def _counts(plain: Plain, name: str) -> tuple[int, ...]:
    return tuple(_checked(value, name) for value in _get(plain, name, list))


def _checked(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is {value!r}")
    return value


def _seconds(plain: Plain, name: str) -> float:
    value = plain[name]
    if not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}")
    return float(value)
