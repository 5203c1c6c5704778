"""GpuTier: the slots of a running GPU, with miss modes, predictions and pins."""

from collections.abc import Iterator, Sequence

from sharpi.engine.backends.gpu.miss_choice import MissChoice
from sharpi.engine.backends.gpu.report import GpuReport
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.experts.prediction_trial import PredictionTrial
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.view import ExpertView
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.pass_counts import PassCounts
from sharpi.ops.cuda.recorded import MissMode


class GpuTier:
    """Decides about the slots in `layers`; `passes` are counted elsewhere and reported here."""

    def __init__(self, slots: GpuSlots, layers: SlottedLayers, passes: PassCounts) -> None:
        self._slots, self._layers = slots, layers
        self._report = GpuReport(slots, layers)
        self._is_ready = False
        self._choice = MissChoice(slots.modes)
        self.trial = PredictionTrial() if slots.predicts else None
        self._num_accesses = 0
        self._is_pinned = not slots.policy.warm_pin
        self.notes: list[str] = []
        self.passes = passes

    def prepare(self) -> None:
        """Allocates the memory, and fills the slots with their first experts."""
        assert self._layers.tables
        self._is_ready = True

    @property
    def mode(self) -> MissMode:
        """The miss mode of the next token."""
        return self._choice.mode

    @property
    def verdict(self) -> MissMode:
        """The fastest miss mode found so far."""
        return self._choice.verdict

    @property
    def shares(self) -> bool:
        """True if the next tokens of several sequences may share a step.

        They may not while miss modes are compared by the times of single tokens.
        """
        return self._is_settled

    @property
    def predicts(self) -> bool:
        """True if the next token's layers prefetch experts for the layer after them.

        They do not while miss modes are compared, because predictions have to improve on the best
        one.
        """
        return self.trial is not None and self._is_settled and self.trial.predicts_now

    @property
    def _is_settled(self) -> bool:
        return self._choice.is_settled

    def insist(self, modes: Sequence[MissMode]) -> None:
        """Restricts the miss modes to these, for measurements."""
        self._choice = MissChoice(modes)

    def begin_step(self, position: int) -> None:
        """Begins a step of tokens from `position` on."""
        self.prepare()
        if position == 0:
            self._layers.tables.reset_sequence()

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """Ends a step."""
        policy = self._slots.policy
        self._num_accesses += num_tokens * len(self._slots.expert_bytes) * policy.experts_per_token
        if not self._is_pinned and self._num_accesses >= policy.warm_pin_after:
            self._layers.tables.pin_most_used(policy.warm_pin)
            self._is_pinned = True
        if num_tokens != 1:
            return
        if self.trial is not None and self._is_settled and self.trial.record(seconds):
            self.notes.append(self.trial.verdict_note)
        if self._choice.record(seconds):
            self.notes.append(f"missed experts: {self._choice.verdict} is now the fastest mode")

    def residents(self) -> dict[int, tuple[int, ...]]:
        """Returns the experts that have slots now, by layer; waits for the GPU."""
        return self._report.residents()

    def stats(self, model: str, num_tokens: int) -> ExpertStats | None:
        """Returns the statistics so far, None before there are slots; waits for the GPU.

        `num_tokens` counts decoded tokens.
        """
        if not self._is_ready:
            return None
        is_on = None if self.trial is None else self.trial.is_on
        return self._report.stats(model, num_tokens, is_on, tuple(self._all_notes()))

    def view(self, num_tokens: int) -> ExpertView | None:
        """Returns which experts have slots and were used, None before there are slots."""
        return self._report.view(num_tokens) if self._is_ready else None

    def _all_notes(self) -> Iterator[str]:
        if self._choice.seconds:
            times = ", ".join(f"{m} {1e3 * s:.2f} ms" for m, s in self._choice.seconds.items())
            yield f"time per token by miss mode: {times}; now {self._choice.verdict}"
        yield from self.passes.notes
        yield from self.notes
