"""GpuTier: a running GPU's slots: how the next misses are served, predictions, and pins."""

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
    """`layers` has the memory; `passes` are counted elsewhere, and told of here."""

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
        """Takes the memory, and fills the slots with what they begin with."""
        assert self._layers.tables
        self._is_ready = True

    @property
    def mode(self) -> MissMode:
        """How the next token's misses are served."""
        return self._choice.mode

    @property
    def verdict(self) -> MissMode:
        """The miss mode that has been found the quickest so far."""
        return self._choice.verdict

    @property
    def shares(self) -> bool:
        """Whether the next tokens of several sequences may share a step.

        Not while miss modes are compared, by what single tokens take.
        """
        return self._is_settled

    @property
    def predicts(self) -> bool:
        """Whether the next token's layers fetch experts for the next one.

        Not while miss modes are compared: predictions are to be an improvement on the
        best.
        """
        return self.trial is not None and self._is_settled and self.trial.predicts_now

    @property
    def _is_settled(self) -> bool:
        return self._choice.is_settled

    def insist(self, modes: Sequence[MissMode]) -> None:
        """Misses are served in one of these ways from now on; for measurements."""
        self._choice = MissChoice(modes)

    def begin_step(self, position: int) -> None:
        """Before tokens from `position` on."""
        self.prepare()
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
            self.notes.append(self.trial.verdict_note)
        if self._choice.record(seconds):
            self.notes.append(f"missed experts: {self._choice.verdict} is now the fastest mode")

    def residents(self) -> dict[int, tuple[int, ...]]:
        """The experts that have slots now, by layer. Waits for the GPU."""
        return self._report.residents()

    def stats(self, model: str, num_tokens: int) -> ExpertStats | None:
        """What happened so far; `num_tokens` counts decoded ones. Waits for the GPU.

        None before the slots are there.
        """
        if not self._is_ready:
            return None
        is_on = None if self.trial is None else self.trial.is_on
        return self._report.stats(model, num_tokens, is_on, tuple(self._all_notes()))

    def view(self, num_tokens: int) -> ExpertView | None:
        """Who has a slot and was used; None before the slots are there. Waits for the GPU."""
        return self._report.view(num_tokens) if self._is_ready else None

    def _all_notes(self) -> Iterator[str]:
        if self._choice.seconds:
            times = ", ".join(f"{m} {1e3 * s:.2f} ms" for m, s in self._choice.seconds.items())
            yield f"time per token by miss mode: {times}; now {self._choice.verdict}"
        yield from self.passes.notes
        yield from self.notes
