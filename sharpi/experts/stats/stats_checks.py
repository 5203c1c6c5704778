"""Checks that the expert statistics of a run are consistent with each other."""

from collections.abc import Iterator

from sharpi.experts.stats.counts import LayerStats, PhaseCounts
from sharpi.experts.stats.stats import ExpertStats, PredictionStats


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
    """Returns True if steps may have waited for experts.

    With slots on a GPU, steps also wait to find out that no expert was missed.
    """
    brought = counts.late + counts.loads + counts.prefetched
    return bool(brought) or (stats.tier == "VRAM" and counts.accesses > 0)


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
    if sums != stats.hit_count:
        yield (
            f"lookups and hits before and after the warm pin are {sums[0]} and {sums[1]}, in all"
            f" {stats.hit_count.accesses} and {stats.hit_count.hits}"
        )


def _of_prediction(found: PredictionStats) -> Iterator[str]:
    if found.right > min(found.guessed, found.used):
        yield f"{found.right} right of {found.guessed} predicted and {found.used} used experts"
    if found.predicted_steps > found.steps:
        yield f"predictions in {found.predicted_steps} of {found.steps} steps"
