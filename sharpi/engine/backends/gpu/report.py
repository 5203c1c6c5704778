"""GpuReport: statistics and views of a GPU's slots."""

from collections.abc import Mapping

import numpy as np

from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.experts.native.store import StoreCounts
from sharpi.experts.policy_choice import DEFAULT_PREDICTOR
from sharpi.experts.stats.stats import ExpertStats, LayerStats, PredictionStats
from sharpi.experts.stats.view import ExpertView
from sharpi.ops.cuda.expert_slots.slot_state import SlotCounts, SlotStates, total_counts
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers


class GpuReport:
    """Reads a GPU's slots, which have to exist; every call waits for the GPU."""

    def __init__(self, slots: GpuSlots, layers: SlottedLayers) -> None:
        self._slots, self._layers = slots, layers

    def residents(self) -> dict[int, tuple[int, ...]]:
        """Returns the experts that have slots, by layer."""
        states = self._layers.tables.read_states()
        return {n: tuple(np.flatnonzero(each.slot_of >= 0).tolist()) for n, each in states.items()}

    def stats(
        self, model: str, num_tokens: int, predicts: bool | None, notes: tuple[str, ...]
    ) -> ExpertStats:
        """Returns all statistics; `predicts` is None if nothing is predicted."""
        tables, rules = self._layers.tables, self._layers.rules
        counts, states = tables.read_counts(), tables.read_states()
        return ExpertStats(
            model=model,
            policy=self._slots.policy.kind.name.lower().replace("_", "-"),
            num_experts=rules.num_experts,
            experts_per_token=rules.experts_per_token,
            num_tokens=num_tokens,
            layers=tuple(self._layer(number, counts[number], states[number]) for number in counts),
            prediction=None if predicts is None else self._prediction(counts, is_on=predicts),
            notes=(*self._slots.notes, *_served(total_counts(tuple(counts.values()))), *notes),
        )

    def view(self, num_tokens: int) -> ExpertView:
        """Returns which experts have a slot, and how often each was used."""
        tables = self._layers.tables
        counts, states = tables.read_counts(), tables.read_states()
        return ExpertView(
            layers=tuple(states),
            slots=tuple(map(self._layers.num_slots, states)),
            resident=np.stack([each.slot_of >= 0 for each in states.values()]),
            uses=np.stack([each.uses.astype(np.int64) for each in states.values()]),
            num_tokens=num_tokens,
            counts=tuple(self._as_store(number, each) for number, each in counts.items()),
        )

    def _as_store(self, number: int, counts: SlotCounts) -> StoreCounts:
        """Converts counts to those of an expert store: bytes over the bus count as read."""
        size = self._slots.expert_bytes[number]
        return StoreCounts(
            accesses=counts.accesses,
            hits=counts.hits,
            late=counts.early_hits,
            loads=counts.loads + counts.staged,
            bytes_read=counts.over_bus * size,
            stall_ns=0,
            prefetched=counts.early_loads,
            prefetch_used=counts.early_hits,
            wasted_bytes=counts.early_wasted * size,
        )

    def _layer(self, number: int, counts: SlotCounts, states: SlotStates) -> LayerStats:
        store = self._as_store(number, counts)
        return LayerStats(
            layer=number,
            num_slots=self._layers.num_slots(number),
            accesses=store.accesses,
            hits=store.hits,
            late=store.late,
            loads=store.loads,
            bytes_read=store.bytes_read,
            stall_seconds=0.0,
            uses=tuple(states.uses.tolist()),
            pinned=tuple(np.flatnonzero(states.pinned).tolist()),
        )

    def _prediction(self, counts: Mapping[int, SlotCounts], *, is_on: bool) -> PredictionStats:
        sizes, total = self._slots.expert_bytes, total_counts(tuple(counts.values()))
        return PredictionStats(
            predictor=DEFAULT_PREDICTOR,
            is_on=is_on,
            guessed=total.predictions,
            used=total.predictions,
            right=total.right_predictions,
            prefetched=total.early_loads,
            prefetch_used=total.early_hits,
            late=0,
            dropped=0,
            failed=0,
            bytes_moved=sum(each.early_loads * sizes[i] for i, each in counts.items()),
            wasted_bytes=sum(each.early_wasted * sizes[i] for i, each in counts.items()),
        )


def _served(counts: SlotCounts) -> list[str]:
    """Returns sentences about how misses were served."""
    served = {
        "loaded into slots": counts.loads,
        "loaded for one use": counts.staged,
        "read in place": counts.streamed,
        "computed by the CPU": counts.computed,
        "read in place for lack of staging buffers": counts.overflows,
    }
    return [f"missed experts {how}: {count}" for how, count in served.items() if count]
