"""Formats expert stats as lines of readable text."""

from collections.abc import Iterator

from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts
from sharpi.experts.stats.stats import ExpertStats, PredictionStats, RemoteStats, SkewStats
from sharpi.units import format_bytes


def summary_lines(stats: ExpertStats) -> Iterator[str]:
    """Yields the lines of the summary of a run, each with a heading."""
    yield f"model       {stats.model}"
    yield (
        f"experts     {stats.num_experts} in each of {len(stats.layers)} layers,"
        f" {stats.experts_per_token} per token"
    )
    yield (f"tokens      {stats.num_prompt_tokens} of prompts, {stats.num_tokens} decoded")
    yield from tier_lines(stats)
    if stats.skew is not None:
        yield f"skew        {_skew(stats.skew)}"
    for note in stats.notes:
        yield f"note        {note}"


def tier_lines(stats: ExpertStats) -> Iterator[str]:
    """Yields the lines about one tier's slots: hits, reads, pins, predictions."""
    yield f"slots       in {stats.tier}, policy {stats.policy}"
    mapped = f"; {stats.total.mapped} in the mapped file" if stats.total.mapped else ""
    yield f"hits        {_hits(stats.total.hit_count)}{mapped}"
    if stats.total.accesses:
        yield f"prompts     {_phase(stats.prompt)}"
        yield f"decode      {_phase(stats.decode)}{_per_token(stats)}"
        filled = f", {stats.fills} experts of them before they were needed" if stats.fills else ""
        yield f"read        {format_bytes(stats.bytes_read)} in all{filled}"
    if stats.asked is not None:
        yield f"remote      {_remote(stats.asked, stats.total.remote)}"
    if stats.before_pin is not None and stats.after_pin is not None:
        yield f"warm pin    {_hits(stats.before_pin)} before it, {_hits(stats.after_pin)} after it"
    if stats.prediction is not None:
        yield from _prediction(stats.prediction, stats.total)


def layer_line(layer: LayerStats) -> str:
    """Returns a line with a layer's hit rate, loads, reads, stalls and most used experts."""
    name, total = f"layer {layer.layer:<5} ", layer.total
    if not total.accesses:
        return f"{name}no accesses"
    top = " ".join(f"{each.expert} ({100 * each.share:.0f} %)" for each in layer.top())
    pinned = f"; pinned {' '.join(map(str, layer.pinned))}" if layer.pinned else ""
    computed = f" {total.computed} computed by the CPU," if total.computed else ""
    computed += f" {total.remote} by other machines," if total.remote else ""
    computed += f" {total.mapped} in the mapped file," if total.mapped else ""
    read = format_bytes(layer.bytes_read)
    return (
        f"{name}{_hits(total.hit_count)}, {layer.num_slots} slots, {total.loads} loads,{computed}"
        f" {total.late} late, {read}, stalled {total.stall_seconds:.3f} s;"
        f" top {top}{pinned}"
    )


def percent(rate: float | None) -> str:
    """Formats a rate as `83.1 %`, or as `none` if nothing was counted."""
    return "none" if rate is None else f"{100 * rate:.1f} %"


def _hits(count: HitCount) -> str:
    if not count.accesses:
        return "no accesses"
    return f"{percent(count.rate)} ({count.hits} of {count.accesses})"


def _phase(counts: PhaseCounts) -> str:
    if not counts.accesses:
        return "no accesses"
    computed = f"; {counts.computed} computed by the CPU" if counts.computed else ""
    computed += f"; {counts.mapped} in the mapped file" if counts.mapped else ""
    return (
        f"hits {_hits(counts.hit_count)}; {counts.late} late; {counts.loads} loads,"
        f" {format_bytes(counts.bytes_loaded)}{computed}"
        f"; stalled {counts.stall_seconds:.3f} s"
    )


def _per_token(stats: ExpertStats) -> str:
    loads = stats.per_token(stats.decode.loads)
    stalls = stats.per_token(1000 * stats.decode.stall_seconds)
    if loads is None or stalls is None:
        return ""
    return f"; per token: {loads:.2f} loads, {stalls:.2f} ms stalled"


def _prediction(found: PredictionStats, total: PhaseCounts) -> Iterator[str]:
    state = "on" if found.is_on else "off"
    yield (
        f"prediction  {found.predictor}, {state}, in {found.predicted_steps} of {found.steps}"
        f" steps; recall {percent(found.recall)}, precision {percent(found.precision)}"
    )
    yield (
        f"prefetch    {total.prefetched} experts, {total.prefetch_used} used;"
        f" {found.dropped} dropped, {found.failed} failed"
    )
    moved, wasted = format_bytes(found.bytes_moved), format_bytes(total.wasted_bytes)
    yield f"            {moved} moved, {wasted} wasted"


def _remote(remote: RemoteStats, num_experts: int) -> str:
    milliseconds = 1e3 * remote.round_trip_seconds / max(1, remote.questions)
    return (
        f"{num_experts} experts by other machines in {remote.questions} requests of"
        f" {milliseconds:.2f} ms; {format_bytes(remote.bytes_sent)} sent,"
        f" {format_bytes(remote.bytes_received)} received, {remote.stall_seconds:.3f} s waited"
    )


def _skew(skew: SkewStats) -> str:
    return (
        f"--moe-capacity-factor {skew.capacity_factor:.2f} has room for full batches such as these"
        f" {skew.batches}; the busiest expert had {skew.busiest_share:.1f} even shares"
    )
