"""Merges expert statistics: of slots that a tier gave up, and of ranks that run one model."""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain

import numpy as np
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from sharpi.experts.layer_stats import LayerStats, PhaseCounts, sum_of_hits
from sharpi.experts.stats.stats import ExpertStats, PredictionStats, RemoteStats
from sharpi.experts.stats.stats_collect import MappedUses, RunFacts


def joined_stats(ranks: Sequence[ExpertStats], run: RunFacts) -> ExpertStats:
    """Returns the statistics of all layers and ranks, without predictions, which differ."""
    # Ranks without reads have no notes of interest.
    telling = [each for each in ranks if each.bytes_read] or ranks
    return replace(
        ranks[0],
        tier=", ".join(dict.fromkeys(each.tier for each in ranks)),
        policy=", ".join(dict.fromkeys(each.policy for each in ranks)),
        **run.of_tokens(),
        layers=_layers(ranks),
        before_pin=sum_of_hits(each.before_pin for each in ranks),
        after_pin=sum_of_hits(each.after_pin for each in ranks),
        prediction=None,
        failed_reads=sum(each.failed_reads for each in ranks),
        asked=_asked(each.asked for each in ranks if each.asked is not None),
        notes=tuple(dict.fromkeys(chain(*(each.notes for each in telling)))),
    )


def _layers(ranks: Sequence[ExpertStats]) -> tuple[LayerStats, ...]:
    """Returns each layer's statistics, by index, from the rank with the most accesses of it."""
    found: dict[int, LayerStats] = {}
    for layer in chain(*(each.layers for each in ranks)):
        known = found.get(layer.layer)
        if known is None or known.total.accesses < layer.total.accesses:
            found[layer.layer] = layer
    return tuple(found[index] for index in sorted(found))


def _asked(found: Iterable[RemoteStats]) -> RemoteStats | None:
    columns = zip(*map(astuple, found), strict=True)
    sums = [sum(values) for values in columns]
    return RemoteStats(*sums) if sums else None


def merge_slot_periods(
    periods: Sequence[ExpertStats], run: RunFacts, mapped: MappedUses | None
) -> ExpertStats:
    """Returns the sum of the statistics of all periods with slots, and of `mapped` if not None.

    `mapped` has the uses of experts in the mapped file. All periods have the same layers. Values
    that cannot be summed are those of the last period.
    """
    total = reduce(_sum_of_two, periods)
    layers = total.layers
    if mapped is not None:
        layers = tuple(_and_mapped(each, mapped) for each in layers)
    return replace(total, **run.of_tokens(), layers=layers)


def _sum_of_two(first: ExpertStats, second: ExpertStats) -> ExpertStats:
    return replace(
        second,
        layers=tuple(map(LayerStats.plus, second.layers, first.layers)),
        prediction=_sum_of_predictions(first.prediction, second.prediction),
        failed_reads=first.failed_reads + second.failed_reads,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )


def _sum_of_predictions(
    first: PredictionStats | None, second: PredictionStats | None
) -> PredictionStats | None:
    if first is None or second is None:
        return second
    pairs = zip(astuple(first)[2:], astuple(second)[2:], strict=True)
    return PredictionStats(second.predictor, second.is_on, *map(sum, pairs))


def _and_mapped(layer: LayerStats, mapped: MappedUses) -> LayerStats:
    prompt, decode, uses = (
        each[layer.layer] for each in (mapped.prompt, mapped.decode, mapped.uses)
    )
    return layer.with_lookups(_in_file(prompt), _in_file(decode), uses.tolist())


def _in_file(steps: NDArray[np.int64]) -> PhaseCounts:
    lookups = int(steps.sum())
    return PhaseCounts(accesses=lookups, mapped=lookups)


class FreedSlots:
    """Sums the statistics of RAM slots each time that a tier gives them up.

    `uses` (layers, experts) has the number of tokens that used each expert. `layers` has an entry
    for each layer of the model, and is empty until slots were given up.
    """

    def __init__(self, num_layers: int, num_experts: int) -> None:
        self.uses = np.zeros((num_layers, num_experts), np.int64)
        self.layers: list[LayerStats] = []
        self._stats: list[ExpertStats] = []

    def add(self, layers: list[LayerStats], stats: ExpertStats) -> None:
        """Adds the statistics of slots that are being given up."""
        self.layers = self.with_present(layers)
        self.uses = np.array([layer.uses for layer in self.layers], np.int64)
        self._stats.append(stats)

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Each layer's experts, the most used first."""
        order = np.argsort(-self.uses, axis=1, kind="stable").tolist()
        return tuple(map(tuple, order))

    def with_present(self, layers: list[LayerStats]) -> list[LayerStats]:
        """Returns the sums for each layer, with the counts of the present slots added."""
        return list(map(LayerStats.plus, layers, self.layers)) if self.layers else layers

    def stats(
        self, present: ExpertStats | None, run: RunFacts, mapped: MappedUses | None
    ) -> ExpertStats:
        """Returns the sum for present and past slots, and for lookups in the mapped file."""
        if not self._stats and present is not None:
            return present
        return merge_slot_periods([*self._stats, *filter(None, [present])], run, mapped)
