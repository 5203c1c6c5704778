"""Collects the ExpertStats of a running model from its slot policy and its expert store."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts, sum_of
from sharpi.experts.native.feed import FeedCounts
from sharpi.experts.native.remote import RemoteExperts
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.stats.stats import ExpertStats, PredictionStats, RemoteStats, SkewStats


class RunFacts(Struct, frozen=True):
    """The facts about a run that come from the engine, not from a tier of expert slots."""

    model: str
    num_prompt_tokens: int = 0
    num_tokens: int = 0  # decoded tokens
    num_beside: int = 0  # those decoded in steps that also computed part of a prompt
    skew: SkewStats | None = None
    notes: tuple[str, ...] = ()

    def of_tokens(self) -> dict[str, Any]:
        """Returns the facts about tokens, which are fields of ExpertStats."""
        return {name: getattr(self, name) for name in self.__struct_fields__[1:-1]}


class TierFacts(Struct, frozen=True):
    """The facts about the expert slots in RAM that do not come from the expert store."""

    predictor: str | None = None  # None if no predictor was requested
    predicts: bool = False  # False if the timing trial switched it off
    predictions: FeedCounts | None = None
    asked: RemoteStats | None = None
    notes: tuple[str, ...] = ()


def collect_stats(
    store: ExpertStore, run: RunFacts, tier: TierFacts, remote: RemoteExperts | None = None
) -> ExpertStats:
    """Returns the stats so far, also of experts on other machines; call it between two steps."""
    settings, fault = store.policy.settings, store.last_fault()
    own = tuple(each for each in store.layers() if store.layout.layers[each.layer].num_experts)
    layers = _with_remote(own, remote)
    before, after = _around_pin(store, layers)
    return ExpertStats(
        model=run.model,
        tier="RAM",
        policy=settings.kind.label,
        num_experts=settings.num_experts,
        experts_per_token=settings.experts_per_token,
        **run.of_tokens(),
        layers=layers,
        before_pin=before,
        after_pin=after,
        prediction=_prediction(store, tier),
        failed_reads=store.totals().failed_reads,
        asked=tier.asked,
        notes=run.notes + tier.notes + (() if fault is None else (f"a read failed: {fault}",)),
    )


def _with_remote(
    layers: tuple[LayerStats, ...], remote: RemoteExperts | None
) -> tuple[LayerStats, ...]:
    """Returns the layers with the accesses and uses of experts on other machines added."""
    if remote is None:
        return layers
    accesses, uses = (counts.tolist() for counts in remote.uses())
    phases = [[PhaseCounts(accesses=n, remote=n) for n in counts] for counts in accesses]
    return tuple(
        each.with_lookups(phases[each.layer][0], phases[each.layer][1], uses[each.layer])
        for each in layers
    )


def _around_pin(
    store: ExpertStore, layers: Sequence[LayerStats]
) -> tuple[HitCount | None, HitCount | None]:
    """Returns the lookups before and after the warm pin, (None, None) without one."""
    counted = store.before_pin()
    if counted is None:
        return None, None
    before, total = HitCount(*counted), sum_of(layer.total for layer in layers)
    return before, total.since(before)


def _prediction(store: ExpertStore, facts: TierFacts) -> PredictionStats | None:
    if facts.predictor is None:
        return None
    totals, counts = store.totals(), facts.predictions or FeedCounts()
    return PredictionStats(
        predictor=facts.predictor,
        is_on=facts.predicts and bool(counts.is_worth_it),
        steps=counts.steps,
        predicted_steps=counts.predicted_steps,
        guessed=counts.predicted,
        used=counts.used,
        right=counts.right,
        dropped=totals.dropped_prefetches,
        failed=totals.failed_prefetches,
        bytes_moved=totals.prefetched_bytes,
    )


class MappedUses(Struct, frozen=True):
    """The counts of uses of a model whose experts are all in memory; arrays (layers, experts)."""

    uses: NDArray[np.int64]  # the number of tokens that used each expert
    prompt: NDArray[np.int64]  # the number of steps of prompts that used each expert
    decode: NDArray[np.int64]  # the number of decoding steps that used each expert


class Residents(Struct, frozen=True):
    """The uses of experts in layers that have all of them in memory.

    `expert_bytes` has the bytes of one expert for each layer with experts. The experts of the
    layers `in_vram` are in VRAM, those of others in RAM.
    """

    counted: MappedUses
    expert_bytes: dict[int, int]
    in_vram: frozenset[int] = frozenset()

    def layer(self, index: int) -> LayerStats:
        """Returns the stats of a layer of which all experts are in memory."""
        counted = self.counted
        return LayerStats(
            layer=index,
            num_slots=counted.uses.shape[1],
            expert_bytes=self.expert_bytes[index],
            prompt=_all_hits(counted.prompt[index]),
            decode=_all_hits(counted.decode[index]),
            fills=0,
            bytes_read=0,
            uses=tuple(counted.uses[index].tolist()),
        )

    def notes(self, layers: Collection[int]) -> Iterator[str]:
        """Yields a sentence about those of `layers` in RAM, and one about those in VRAM."""
        for tier, own in (("RAM", set(layers) - self.in_vram), ("VRAM", self.in_vram & {*layers})):
            if own:
                yield f"all experts are in {tier} in layers {', '.join(map(str, sorted(own)))}"


def with_resident(stats: ExpertStats, residents: Residents) -> ExpertStats:
    """Returns the stats of slots with those layers added that have all experts in memory."""
    tiers = (stats,) if stats.below is None else (stats, stats.below)
    slotted = {layer.layer for tier in tiers for layer in tier.layers}
    others = [index for index in residents.expert_bytes if index not in slotted]
    layers = (*stats.layers, *map(residents.layer, others))
    return structs.replace(
        stats,
        layers=tuple(sorted(layers, key=lambda each: each.layer)),
        notes=(*stats.notes, *residents.notes(others)),
    )


def stats_of_resident(run: RunFacts, residents: Residents, experts_per_token: int) -> ExpertStats:
    """Returns the stats of a model whose experts are all in memory."""
    layers, in_vram = residents.expert_bytes.keys(), residents.in_vram
    notes = tuple(residents.notes(layers)) if in_vram else ()
    return ExpertStats(
        model=run.model,
        tier=("VRAM" if in_vram >= layers else "RAM, VRAM") if in_vram else "RAM",
        policy="resident" if in_vram else "mapped",
        num_experts=residents.counted.uses.shape[1],
        experts_per_token=experts_per_token,
        **run.of_tokens(),
        layers=tuple(map(residents.layer, layers)),
        notes=("all experts are in memory: nothing was loaded", *notes, *run.notes),
    )


def _all_hits(steps: NDArray[np.int64]) -> PhaseCounts:
    accesses = int(steps.sum())
    return PhaseCounts(accesses=accesses, hits=accesses)


class ExpertView(Struct, frozen=True):
    """A snapshot of the experts in some layers; counts grow from one snapshot to the next."""

    layers: tuple[int, ...]  # layer indices
    slots: tuple[int, ...]  # slots of each layer
    resident: NDArray[np.bool_]  # (layers, experts)
    uses: NDArray[np.int64]  # (layers, experts) since the start
    # of each layer since the start; None if all experts are in memory
    counts: tuple[LayerStats, ...] | None = None


def view_of_mapped(uses: NDArray[np.int64], moe_layers: Sequence[int]) -> ExpertView:
    """Returns a snapshot of a model with all experts in memory; `uses` (layers, experts)."""
    rows = uses[list(moe_layers)]
    slots = (rows.shape[1],) * len(moe_layers)
    return ExpertView(tuple(moe_layers), slots, np.ones(rows.shape, np.bool_), rows)
