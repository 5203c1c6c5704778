"""GpuReport: statistics and views of a GPU's slots."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from sharpi.engine.backends.gpu.slots import GpuSlots, HostFilling
from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts, sum_of
from sharpi.experts.policy_choice import DEFAULT_PREDICTOR
from sharpi.experts.stats.stats import ExpertStats, PredictionStats
from sharpi.experts.stats.stats_collect import ExpertView, RunFacts
from sharpi.ops.cuda.expert_slots.slot_state import (
    PhaseSlotCounts,
    SlotCounts,
    SlotStates,
    total_counts,
)
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers


class PredictionSteps(Struct):
    """Counts of all decoding steps, and of those whose layers predicted the next layer's routes."""

    steps: int = 0
    predicted: int = 0


class GpuReport:
    """Reads the statistics of a GPU's slots, which must exist; every call waits for the GPU."""

    def __init__(self, slots: GpuSlots, layers: SlottedLayers) -> None:
        self._slots, self._layers = slots, layers
        self.filling: HostFilling | None = None  # the policy, if it runs on the host
        self.prediction_steps = PredictionSteps()

    def residents(self) -> dict[int, tuple[int, ...]]:
        states = self._layers.tables.words.read_states()
        return {n: tuple(np.flatnonzero(each.slot_of >= 0).tolist()) for n, each in states.items()}

    def loads_and_pins(self) -> dict[int, tuple[int, list[int]]]:
        return {each.layer: (each.total.loads, list(each.pinned)) for each in self._layer_stats()}

    def hit_count(self) -> HitCount:
        return sum_of(each.total for each in self._layer_stats()).hit_count

    def stats(
        self,
        run: RunFacts,
        predicts: bool | None,
        before_pin: HitCount | None,
        notes: tuple[str, ...],
    ) -> ExpertStats:
        """Returns all statistics; `predicts` is None without a predictor."""
        rules, layers = self._layers.rules, self._layer_stats()
        totals = {n: each.total for n, each in self._layers.tables.words.read_phases().items()}
        return ExpertStats(
            model=run.model,
            tier="VRAM",
            policy=self._slots.policy.kind.label,
            num_experts=rules.num_experts,
            experts_per_token=rules.experts_per_token,
            **run.of_tokens(),
            layers=layers,
            before_pin=before_pin,
            after_pin=before_pin and sum_of(each.total for each in layers).since(before_pin),
            prediction=None if predicts is None else self._prediction(totals, is_on=predicts),
            notes=(
                *run.notes,
                *self._slots.notes,
                *_miss_mode_notes(total_counts(tuple(totals.values()))),
                *notes,
            ),
        )

    def view(self) -> ExpertView:
        states, layers = self._layers.tables.words.read_states(), self._layer_stats()
        return ExpertView(
            layers=tuple(states),
            slots=tuple(map(self._layers.num_slots, states)),
            resident=np.stack([each.slot_of >= 0 for each in states.values()]),
            uses=np.stack([each.uses.astype(np.int64) for each in states.values()]),
            counts=layers,
        )

    def _layer_stats(self) -> tuple[LayerStats, ...]:
        words = self._layers.tables.words
        counts, states = words.read_phases(), words.read_states()
        return tuple(self._layer(number, counts[number], states[number]) for number in counts)

    def _bytes_read(self, number: int, counts: PhaseSlotCounts) -> int:
        moved = counts.total.over_bus - counts.total.fills + self._fills(number, counts)
        moved += self._streamed_unused(number, counts.prompt)
        return moved * self._slots.expert_bytes[number]

    def _streamed_unused(self, number: int, prompt: SlotCounts) -> int:
        """Returns the number of experts that prompts streamed through buffers but did not use."""
        return max(0, self._layers.prefill_access.num_streamed(number) - prompt.staged)

    def _phase(self, number: int, counts: SlotCounts) -> PhaseCounts:
        """Converts the counts of prompts or of decoding."""
        size, loads = self._slots.expert_bytes[number], counts.loads + counts.staged
        return PhaseCounts(
            accesses=counts.accesses,
            hits=counts.hits + counts.early_hits - counts.late,
            late=counts.late,
            loads=loads + counts.streamed,
            computed=counts.computed,
            bytes_loaded=(loads + counts.streamed) * size,
            stall_seconds=counts.waited / 1e9,
            prefetched=counts.early_loads,
            prefetch_used=counts.early_hits,
            wasted_bytes=counts.early_wasted * size,
        )

    def _prompt(self, number: int, counts: PhaseSlotCounts) -> PhaseCounts:
        """Converts the counts of prompts, for which all experts of a layer may be streamed."""
        unused = self._streamed_unused(number, counts.prompt)
        wasted = unused * self._slots.expert_bytes[number]
        return sum_of(
            (
                self._phase(number, counts.prompt),
                PhaseCounts(prefetched=unused, wasted_bytes=wasted),
            )
        )

    def _layer(self, number: int, counts: PhaseSlotCounts, states: SlotStates) -> LayerStats:
        return LayerStats(
            layer=number,
            num_slots=self._layers.num_slots(number),
            expert_bytes=self._slots.expert_bytes[number],
            prompt=self._prompt(number, counts),
            decode=self._phase(number, counts.decode),
            fills=self._fills(number, counts),
            bytes_read=self._bytes_read(number, counts),
            uses=tuple(states.uses.tolist()),
            pinned=self._pinned(number, states),
        )

    def _pinned(self, number: int, states: SlotStates) -> tuple[int, ...]:
        if self.filling is not None:
            return self.filling.pinned(number)
        return tuple(np.flatnonzero(states.pinned).tolist())

    def _fills(self, number: int, counts: PhaseSlotCounts) -> int:
        moved = 0 if self.filling is None else self.filling.num_moved[number]
        return counts.total.fills + moved

    def _prediction(self, counts: Mapping[int, SlotCounts], *, is_on: bool) -> PredictionStats:
        sizes, total = self._slots.expert_bytes, total_counts(tuple(counts.values()))
        return PredictionStats(
            predictor=DEFAULT_PREDICTOR,
            is_on=is_on,
            steps=self.prediction_steps.steps,
            predicted_steps=self.prediction_steps.predicted,
            guessed=total.predictions,
            used=total.predicted_uses,
            right=total.right_predictions,
            dropped=0,
            failed=0,
            bytes_moved=sum(each.early_loads * sizes[i] for i, each in counts.items()),
        )


def _miss_mode_notes(counts: SlotCounts) -> list[str]:
    """Returns sentences about how many misses were handled in each miss mode."""
    misses = {
        "loaded into slots": counts.loads,
        "loaded for one use": counts.staged,
        "read in place": counts.streamed,
        "computed by the CPU": counts.computed,
        "read in place for lack of staging buffers": counts.overflows,
    }
    return [f"missed experts {how}: {count}" for how, count in misses.items() if count]
