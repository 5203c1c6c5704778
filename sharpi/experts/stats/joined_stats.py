"""Merges the expert statistics of ranks that each run some layers of one model."""

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec.structs import astuple, replace

from sharpi.experts.stats.counts import HitCount, LayerStats
from sharpi.experts.stats.remote_stats import RemoteStats
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts


def joined_stats(ranks: Sequence[ExpertStats], run: RunFacts) -> ExpertStats:
    """Returns the statistics of all layers, with the token counts of the first rank's `run`.

    Predictions are left out: each rank predicts for its layers only, so there is no common recall.
    """
    before, after = _around_pins(ranks)
    # Ranks without reads have no notes of interest.
    telling = [each for each in ranks if each.bytes_read] or ranks
    return replace(
        ranks[0],
        policy=", ".join(dict.fromkeys(each.policy for each in ranks)),
        num_prompt_tokens=run.num_prompt_tokens,
        num_tokens=run.num_tokens,
        num_beside=run.num_beside,
        layers=_layers(ranks),
        before_pin=before,
        after_pin=after,
        prediction=None,
        skew=run.skew,
        failed_reads=sum(each.failed_reads for each in ranks),
        asked=_asked(each.asked for each in ranks if each.asked is not None),
        notes=tuple(dict.fromkeys(chain(*(each.notes for each in telling)))),
    )


def _layers(ranks: Sequence[ExpertStats]) -> tuple[LayerStats, ...]:
    """Returns the statistics of each layer, by layer index.

    Of several ranks that report a layer, the one with the most accesses counts.
    """
    found: dict[int, LayerStats] = {}
    for layer in chain(*(each.layers for each in ranks)):
        known = found.get(layer.layer)
        if known is None or known.accesses < layer.accesses:
            found[layer.layer] = layer
    return tuple(found[index] for index in sorted(found))


def _around_pins(ranks: Sequence[ExpertStats]) -> tuple[HitCount | None, HitCount | None]:
    """Returns the lookups before and after each rank pinned its most used experts.

    All lookups of a rank that pinned none count as after. Returns (None, None) if no rank pinned
    any.
    """
    if all(each.before_pin is None for each in ranks):
        return None, None
    before = _sum(each.before_pin or HitCount(0, 0) for each in ranks)
    after = _sum(each.hit_count if each.after_pin is None else each.after_pin for each in ranks)
    return before, after


def _sum(counts: Iterable[HitCount]) -> HitCount:
    accesses, hits = zip(*counts, strict=True)
    return HitCount(sum(accesses), sum(hits))


def _asked(found: Iterable[RemoteStats]) -> RemoteStats | None:
    columns = zip(*map(astuple, found), strict=True)
    sums = [sum(values) for values in columns]
    return RemoteStats(*sums) if sums else None
