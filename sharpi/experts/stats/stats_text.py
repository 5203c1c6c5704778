"""Expert stats as text for people, with the data itself in the last line."""

from collections.abc import Iterator

from sharpi.experts.stats.stats import ExpertStats, HitCount, LayerStats, PredictionStats
from sharpi.experts.stats.stats_json import to_json
from sharpi.units import format_bytes

_DATA = "data: "


def format_stats(stats: ExpertStats) -> str:
    """Returns the summary, a line for each layer, and a line of JSON that `sharpi stats` reads."""
    lines = [*summary_lines(stats), "", *(layer_line(each) for each in stats.layers)]
    return "\n".join([*lines, "", _DATA + to_json(stats)]) + "\n"


def embedded_json(text: str) -> str | None:
    """Returns the JSON in a text that `format_stats` wrote; None for any other text."""
    lines = text.rstrip().splitlines()
    return lines[-1].removeprefix(_DATA) if lines and lines[-1].startswith(_DATA) else None


def summary_lines(stats: ExpertStats) -> Iterator[str]:
    """Yields the lines about the run as a whole, each with a heading."""
    yield f"model       {stats.model}"
    yield (
        f"experts     {stats.num_experts} in each of {len(stats.layers)} layers,"
        f" {stats.experts_per_token} a token; {stats.num_tokens} tokens"
    )
    yield f"policy      {stats.policy}"
    yield f"hits        {_hits(stats.hit_count)}"
    if stats.hit_count.accesses:
        yield f"loads       {_loads(stats)}"
        yield f"stalls      {stats.stall_seconds:.3f} s{_stall_per_token(stats)}"
    if stats.before_pin is not None and stats.after_pin is not None:
        yield f"warm pin    {_hits(stats.before_pin)} before it, {_hits(stats.after_pin)} after it"
    if stats.prediction is not None:
        yield from _prediction(stats.prediction)
    for note in stats.notes:
        yield f"note        {note}"


def layer_line(layer: LayerStats) -> str:
    """Returns the line about one layer; a layer without accesses says so."""
    name = f"layer {layer.layer:<5} "
    if not layer.accesses:
        return f"{name}no accesses"
    top = " ".join(f"{each.expert} ({100 * each.share:.0f} %)" for each in layer.top())
    pinned = f"; pinned {' '.join(map(str, layer.pinned))}" if layer.pinned else ""
    read = format_bytes(layer.bytes_read)
    return (
        f"{name}{_hits(layer.hit_count)}, {layer.num_slots} slots, {layer.loads} loads,"
        f" {layer.late} late, {read}, stalled {layer.stall_seconds:.3f} s;"
        f" top {top}{pinned}"
    )


def percent(rate: float | None) -> str:
    """Formats a rate as `83.1 %`, or as `none` if nothing was counted."""
    return "none" if rate is None else f"{100 * rate:.1f} %"


def _hits(count: HitCount) -> str:
    if not count.accesses:
        return "no accesses"
    return f"{percent(count.rate)} ({count.hits} of {count.accesses})"


def _loads(stats: ExpertStats) -> str:
    each = stats.per_token(stats.loads)
    per_token = "" if each is None else f", {each:.2f} a token"
    read = format_bytes(stats.bytes_read)
    return f"{stats.loads}{per_token}; {stats.late} late; {read} read"


def _stall_per_token(stats: ExpertStats) -> str:
    each = stats.per_token(1000 * stats.stall_seconds)
    return "" if each is None else f", {each:.2f} ms a token"


def _prediction(found: PredictionStats) -> Iterator[str]:
    state = "on" if found.is_on else "off"
    yield (
        f"prediction  {found.predictor}, {state}; recall {percent(found.recall)},"
        f" precision {percent(found.precision)}"
    )
    yield (
        f"prefetch    {found.prefetched} experts, {found.prefetch_used} used, {found.late} of them"
        f" late; {found.dropped} dropped, {found.failed} failed"
    )
    moved, wasted = format_bytes(found.bytes_moved), format_bytes(found.wasted_bytes)
    yield f"            {moved} moved, {wasted} wasted"
