"""Merges the statistics of a tier that alternated between expert slots and the mapped file."""

from collections.abc import Sequence
from functools import reduce

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from sharpi.experts.stats.counts import LayerStats, PhaseCounts, sum_of
from sharpi.experts.stats.stats import ExpertStats, PredictionStats
from sharpi.experts.stats.stats_collect import MappedUses, RunFacts


def merge_slot_periods(
    periods: Sequence[ExpertStats], run: RunFacts, mapped: MappedUses | None
) -> ExpertStats:
    """Returns the sum of the statistics of all periods with slots, and of `mapped` if not None.

    `mapped` has the uses of experts in the mapped file. All periods have the same layers. Values
    that cannot be summed are those of the last period.
    """
    total = reduce(_sum, periods)
    layers = (
        total.layers
        if mapped is None
        else tuple(_and_mapped(each, mapped) for each in total.layers)
    )
    return structs.replace(
        total,
        num_prompt_tokens=run.num_prompt_tokens,
        num_tokens=run.num_tokens,
        num_beside=run.num_beside,
        layers=layers,
        skew=run.skew,
    )


def _sum(first: ExpertStats, second: ExpertStats) -> ExpertStats:
    return structs.replace(
        second,
        layers=tuple(map(_sum_of_layers, first.layers, second.layers)),
        prediction=_sum_of_predictions(first.prediction, second.prediction),
        failed_reads=first.failed_reads + second.failed_reads,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )


def _sum_of_layers(first: LayerStats, second: LayerStats) -> LayerStats:
    return structs.replace(
        second,
        prompt=sum_of((first.prompt, second.prompt)),
        decode=sum_of((first.decode, second.decode)),
        fills=first.fills + second.fills,
        bytes_read=first.bytes_read + second.bytes_read,
        uses=tuple(map(int.__add__, first.uses, second.uses)),
    )


def _sum_of_predictions(
    first: PredictionStats | None, second: PredictionStats | None
) -> PredictionStats | None:
    if first is None or second is None:
        return second
    names = ("steps", "predicted_steps", "guessed", "used", "right", "dropped", "failed",
             "bytes_moved")  # fmt: skip
    return structs.replace(
        second, **{name: getattr(first, name) + getattr(second, name) for name in names}
    )


def _and_mapped(layer: LayerStats, mapped: MappedUses) -> LayerStats:
    index = layer.layer
    return structs.replace(
        layer,
        prompt=sum_of((layer.prompt, _in_file(mapped.prompt[index]))),
        decode=sum_of((layer.decode, _in_file(mapped.decode[index]))),
        uses=tuple((mapped.uses[index] + layer.uses).tolist()),
    )


def _in_file(steps: NDArray[np.int64]) -> PhaseCounts:
    lookups = int(steps.sum())
    return PhaseCounts(accesses=lookups, mapped=lookups)
