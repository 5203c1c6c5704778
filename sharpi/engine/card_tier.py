"""CardTier: a running card's slots: how the next misses are served, pins, and what happened."""

from collections.abc import Mapping, Sequence

import numpy as np

from sharpi.engine.card_slots import CardSlots
from sharpi.engine.miss_choice import MissChoice
from sharpi.experts.expert_stats import ExpertStats, LayerStats, PredictionStats
from sharpi.experts.policy_choice import DEFAULT_PREDICTOR
from sharpi.experts.prediction_trial import PredictionTrial
from sharpi.ops.cuda.partial_layers import PartialLayers
from sharpi.ops.cuda.pass_counts import PassCounts
from sharpi.ops.cuda.slot_state import SlotCounts, SlotStates, total_counts
from sharpi.ops.cuda.values import MissMode


class CardTier:
    """`layers` has the memory."""

    def __init__(self, slots: CardSlots, layers: PartialLayers) -> None:
        self._slots, self._layers = slots, layers
        self._choice = MissChoice(slots.modes)
        self.trial = PredictionTrial() if slots.guesses else None
        self._num_accesses = 0
        self._is_pinned = not slots.policy.warm_pin
        self.notes: list[str] = []
        self.passes = PassCounts()

    def prepare(self) -> None:
        """Takes the memory, and fills the slots with what they begin with."""
        assert self._layers.tables

    @property
    def mode(self) -> MissMode:
        """How the next token's misses are served."""
        return self._choice.mode

    @property
    def verdict(self) -> MissMode:
        """The way of serving misses that has been found the quickest so far."""
        return self._choice.verdict

    @property
    def shares(self) -> bool:
        """Whether the next tokens of several sequences may share a step.

        Not while ways of serving misses are compared, by what single tokens take.
        """
        return self._is_settled

    @property
    def guesses(self) -> bool:
        """Whether the next token's layers fetch experts for the next one.

        Not while ways of serving misses are compared: guesses are to be an improvement on the best.
        """
        return self.trial is not None and self._is_settled and self.trial.guesses_now

    @property
    def _is_settled(self) -> bool:
        return self._choice.is_settled

    def insist(self, modes: Sequence[MissMode]) -> None:
        """Misses are served in one of these ways from now on; for measurements."""
        self._choice = MissChoice(modes)

    def begin_step(self, position: int) -> None:
        """Before tokens from `position` on."""
        if position == 0:
            self._layers.tables.reset_sequence()

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """After them."""
        policy = self._slots.policy
        self._num_accesses += num_tokens * len(self._slots.expert_bytes) * policy.experts_per_token
        if not self._is_pinned and self._num_accesses >= policy.warm_pin_after:
            self._layers.tables.pin_most_used(policy.warm_pin)
            self._is_pinned = True
        if num_tokens != 1:
            return
        if self.trial is not None and self._is_settled and self.trial.record(seconds):
            state = "on again" if self.trial.is_on else "off"
            self.notes.append(
                f"prefetching of predicted experts switched {state}: tokens took"
                f" {self.trial.ratio:.2f} times as long with it as without"
            )
        if self._choice.record(seconds):
            self.notes.append(f"missed experts: {self._choice.verdict} has become the quickest way")

    def residents(self) -> dict[int, tuple[int, ...]]:
        """The experts that have slots now, by layer. Waits for the card."""
        states = self._layers.tables.read_states()
        return {n: tuple(np.flatnonzero(each.slot_of >= 0).tolist()) for n, each in states.items()}

    def stats(self, model: str, num_tokens: int) -> ExpertStats:
        """What happened so far; `num_tokens` counts decoded ones. Waits for the card."""
        tables, rules = self._layers.tables, self._layers.rules
        counts, states = tables.read_counts(), tables.read_states()
        return ExpertStats(
            model=model,
            policy=self._slots.policy.kind.name.lower().replace("_", "-"),
            num_experts=rules.num_experts,
            experts_per_token=rules.experts_per_token,
            num_tokens=num_tokens,
            layers=tuple(self._layer(number, counts[number], states[number]) for number in counts),
            prediction=self._prediction(counts),
            notes=(*self._slots.notes, *self._miss_notes(counts), *self.passes.notes, *self.notes),
        )

    def _layer(self, number: int, counts: SlotCounts, states: SlotStates) -> LayerStats:
        return LayerStats(
            layer=number,
            num_slots=self._layers.num_slots(number),
            accesses=counts.accesses,
            hits=counts.hits,
            late=counts.early_hits,
            loads=counts.loads + counts.staged,
            bytes_read=counts.over_bus * self._slots.expert_bytes[number],
            stall_seconds=0.0,
            uses=tuple(states.uses.tolist()),
            pinned=tuple(np.flatnonzero(states.pinned).tolist()),
        )

    def _prediction(self, counts: Mapping[int, SlotCounts]) -> PredictionStats | None:
        if self.trial is None:
            return None
        sizes, total = self._slots.expert_bytes, total_counts(tuple(counts.values()))
        return PredictionStats(
            predictor=DEFAULT_PREDICTOR,
            is_on=self.trial.is_on,
            guessed=total.guesses,
            used=total.guesses,
            right=total.right_guesses,
            prefetched=total.early_loads,
            prefetch_used=total.early_hits,
            late=0,
            dropped=0,
            failed=0,
            bytes_moved=sum(each.early_loads * sizes[i] for i, each in counts.items()),
            wasted_bytes=sum(each.early_wasted * sizes[i] for i, each in counts.items()),
        )

    def _miss_notes(self, counts: Mapping[int, SlotCounts]) -> list[str]:
        """How misses were served, in words."""
        served = {
            "loaded into slots": sum(each.loads for each in counts.values()),
            "loaded for one use": sum(each.staged for each in counts.values()),
            "read in place": sum(each.streamed for each in counts.values()),
            "computed by the CPU": sum(each.computed for each in counts.values()),
            "read in place for want of staging": sum(each.overflows for each in counts.values()),
        }
        notes = [f"missed experts {how}: {count}" for how, count in served.items() if count]
        if self._choice.seconds:
            times = ", ".join(f"{m} {1e3 * s:.2f} ms" for m, s in self._choice.seconds.items())
            notes.append(f"a token by way of serving misses: {times}; now {self._choice.verdict}")
        return notes
