"""Collects ExpertStats of a running model from its slot policy and its expert store."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.experts.native.native_policy import ExpertStates, NativePolicy
from sharpi.experts.native.predictor_native import PredictionCounts
from sharpi.experts.native.store import ExpertStore, StoreCounts
from sharpi.experts.stats.stats import ExpertStats, HitCount, LayerStats, PredictionStats


class RunFacts(Struct, frozen=True):
    """Facts that the engine knows and the store does not."""

    model: str
    num_tokens: int
    predictor: str | None = None  # None if no predictor was requested
    predicts: bool = False
    predictions: PredictionCounts | None = None
    notes: tuple[str, ...] = ()


def collect_stats(store: ExpertStore, facts: RunFacts) -> ExpertStats:
    """Returns the stats of a run so far; may be called at any time between two steps."""
    settings, counts = store.policy.settings, store.counts()
    before, after = _around_pin(store.policy)
    fault = store.last_fault()
    return ExpertStats(
        model=facts.model,
        policy=settings.kind.name.lower().replace("_", "-"),
        num_experts=settings.num_experts,
        experts_per_token=settings.experts_per_token,
        num_tokens=facts.num_tokens,
        layers=_layers(store, counts, store.policy.states()),
        before_pin=before,
        after_pin=after,
        prediction=_prediction(store, counts, facts),
        notes=facts.notes + (() if fault is None else (f"a read failed: {fault}",)),
    )


def stats_of_mapped(
    model: str,
    num_tokens: int,
    uses: NDArray[np.int64],
    moe_layers: Sequence[int],
    experts_per_token: int,
) -> ExpertStats:
    """Returns the stats of a model whose experts are all in memory, from uses (layers, experts)."""
    num_experts = uses.shape[1]
    totals = uses.sum(axis=1).tolist()
    layers = (
        LayerStats(
            layer=layer,
            num_slots=num_experts,
            accesses=totals[layer],
            hits=totals[layer],
            late=0,
            loads=0,
            bytes_read=0,
            stall_seconds=0.0,
            uses=tuple(uses[layer].tolist()),
        )
        for layer in moe_layers
    )
    note = "all experts are in memory: nothing was loaded"
    return ExpertStats(
        model, "mapped", num_experts, experts_per_token, num_tokens, tuple(layers), notes=(note,)
    )


def _layers(
    store: ExpertStore, counts: Sequence[StoreCounts], states: ExpertStates
) -> tuple[LayerStats, ...]:
    return tuple(
        LayerStats(
            layer=index,
            num_slots=min(store.settings.slots[index], layout.num_experts),
            accesses=count.accesses,
            hits=count.hits,
            late=count.late,
            loads=count.loads,
            bytes_read=count.bytes_read,
            stall_seconds=count.stall_ns / 1e9,
            uses=tuple(states.accesses[index].tolist()),
            pinned=tuple(states.pinned[index].nonzero()[0].tolist()),
        )
        for index, (layout, count) in enumerate(zip(store.layout.layers, counts, strict=True))
        if layout.num_experts
    )


def _around_pin(policy: NativePolicy) -> tuple[HitCount | None, HitCount | None]:
    """Returns the policy's lookups before and after the warm pin."""
    if policy.before_pin is None:
        return None, None
    before = HitCount(*policy.before_pin)
    counts = policy.all_counts()
    accesses, hits = sum(each.accesses for each in counts), sum(each.hits for each in counts)
    return before, HitCount(accesses - before.accesses, hits - before.hits)


def _prediction(
    store: ExpertStore, counts: Sequence[StoreCounts], facts: RunFacts
) -> PredictionStats | None:
    if facts.predictor is None:
        return None
    totals = store.totals()
    predictions = facts.predictions or PredictionCounts()
    return PredictionStats(
        predictor=facts.predictor,
        is_on=facts.predicts,
        guessed=predictions.predicted,
        used=predictions.used,
        right=predictions.right,
        prefetched=sum(each.prefetched for each in counts),
        prefetch_used=sum(each.prefetch_used for each in counts),
        late=sum(each.late for each in counts),
        dropped=totals.dropped_prefetches,
        failed=totals.failed_prefetches,
        bytes_moved=totals.prefetched_bytes,
        wasted_bytes=sum(each.wasted_bytes for each in counts),
    )
