"""Reads, checks and writes files of expert stats, as JSON or as text by the file name.

Users may give any file, so that both the JSON and what it says are checked strictly.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import to_builtins

from sharpi.errors import StatsFileError
from sharpi.experts.layer_stats import LayerStats, PhaseCounts
from sharpi.experts.stats.stats import ExpertStats, PredictionStats
from sharpi.experts.stats.stats_text import layer_line, summary_lines, tier_lines
from sharpi.system.files import read_bounded, write_or_warn

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
    """Returns the stats of a text by `to_json`; raises StatsFileError, which names `source`."""
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
    """Raises ValueError if `found`, under the key `name`, differs from `right`."""
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


def contradiction(stats: ExpertStats) -> str | None:
    """Returns a sentence about the first inconsistency in the statistics; None if there is none."""
    return next(_contradictions(stats), None)


def _contradictions(stats: ExpertStats) -> Iterator[str]:
    for layer in stats.layers:
        yield from (f"layer {layer.layer}: {what}" for what in _of_layer(layer, stats))
    yield from _of_pins(stats)
    if stats.prediction is not None:
        yield from _of_prediction(stats.prediction)
    if stats.skew is not None and not 0 < stats.skew.capacity_factor <= 1:
        yield f"a capacity factor of {stats.skew.capacity_factor:g}"
    if stats.below is not None:
        yield from (f"{stats.below.tier}: {what}" for what in _contradictions(stats.below))


def _of_layer(layer: LayerStats, stats: ExpertStats) -> Iterator[str]:
    for name, counts in (("prompt", layer.prompt), ("decode", layer.decode)):
        yield from (f"{name}: {what}" for what in _of_phase(counts, layer.expert_bytes))
        if counts.stall_seconds and not _may_stall(counts, stats):
            yield f"{name}: stalled {counts.stall_seconds:.3f} s, but all experts were there"
    total = layer.total
    if layer.num_slots > stats.num_experts:
        yield f"{layer.num_slots} slots for {stats.num_experts} experts"
    if sum(layer.uses) < total.accesses:
        yield f"{total.accesses} lookups, but {sum(layer.uses)} uses"
    if total.prefetch_used > total.prefetched:
        yield f"{total.prefetch_used} of {total.prefetched} prefetched experts were used"
    if layer.bytes_read < total.bytes_loaded and not stats.failed_reads:
        yield f"{layer.bytes_read} bytes read, of which {total.bytes_loaded} for loads"
    if len(set(layer.pinned)) < len(layer.pinned) or max(layer.pinned, default=0) >= len(
        layer.uses
    ):
        yield "pinned experts that it does not have, or twice"


def _may_stall(counts: PhaseCounts, stats: ExpertStats) -> bool:
    """Returns True if steps may have waited, as they also do for hits on a GPU."""
    brought = counts.late + counts.loads + counts.prefetched
    return bool(brought) or ("VRAM" in stats.tier and counts.accesses > 0)


def _of_phase(counts: PhaseCounts, expert_bytes: int) -> Iterator[str]:
    reached = counts.computed + counts.remote + counts.mapped
    served = counts.hits + counts.late + counts.loads + reached
    if served != counts.accesses:
        yield (
            f"{counts.hits} hits, {counts.late} late, {counts.loads} loads, {counts.computed}"
            f" computed, {counts.remote} remote and {counts.mapped} mapped do not add up to"
            f" {counts.accesses} lookups"
        )
    if counts.bytes_loaded != counts.loads * expert_bytes:
        yield f"{counts.bytes_loaded} bytes for {counts.loads} loads of {expert_bytes} bytes"


def _of_pins(stats: ExpertStats) -> Iterator[str]:
    before, after = stats.before_pin, stats.after_pin
    if (before is None) != (after is None):
        yield "lookups on one side of the warm pin only"
    if before is None or after is None:
        return
    if any(each.hits > each.accesses for each in (before, after)):
        yield "more hits than lookups around the warm pin"
    sums = before.accesses + after.accesses, before.hits + after.hits
    # The layers of machines that pinned nothing count in the totals only.
    total = stats.total
    if sums[0] > total.accesses or sums[1] > total.hits:
        yield (
            f"lookups and hits before and after the warm pin are {sums[0]} and {sums[1]}, in all"
            f" {total.accesses} and {total.hits}"
        )


def _of_prediction(found: PredictionStats) -> Iterator[str]:
    if found.right > min(found.guessed, found.used):
        yield f"{found.right} right of {found.guessed} predicted and {found.used} used experts"
    if found.predicted_steps > found.steps:
        yield f"predictions in {found.predicted_steps} of {found.steps} steps"


_DATA = "data: "


def format_stats(stats: ExpertStats) -> str:
    """Returns a text: a summary, a line per layer, and a line of JSON that `sharpi stats` reads."""
    lines = [*summary_lines(stats), "", *(layer_line(each) for each in stats.layers)]
    if stats.below is not None:
        lines += ["", *tier_lines(stats.below), "", *map(layer_line, stats.below.layers)]
    return "\n".join([*lines, "", _DATA + to_json(stats)]) + "\n"


def embedded_json(text: str) -> str | None:
    """Returns the JSON in a text that `format_stats` wrote; None for any other text."""
    lines = text.rstrip().splitlines()
    return lines[-1].removeprefix(_DATA) if lines and lines[-1].startswith(_DATA) else None


def save_stats(path: Path, stats: ExpertStats) -> str | None:
    """Writes the stats atomically, as JSON if the name ends in .json, otherwise as text.

    Returns None, or a warning if that fails, because stats must never end a run. Inconsistent stats
    are not written.
    """
    wrong = contradiction(stats)
    if wrong is not None:
        return f"no expert stats were written, since they are wrong ({wrong}); please report it"
    text = to_json(stats) + "\n" if path.suffix.lower() == ".json" else format_stats(stats)
    return write_or_warn(path, text.encode(), "the expert stats were")


def read_stats(path: Path) -> ExpertStats:
    """Returns the stats in a JSON or text file; raises StatsFileError if it cannot be used."""
    try:
        text = read_bounded(path).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StatsFileError(f"{path}: cannot be read ({reason})") from None
    stats = from_json(embedded_json(text) or text, str(path))
    wrong = contradiction(stats)
    if wrong is not None:
        raise StatsFileError(f"{path}: impossible expert stats ({wrong}); record them anew")
    return stats
