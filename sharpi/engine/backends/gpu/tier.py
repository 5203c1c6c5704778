"""GpuTier: the slots of a running GPU, with miss modes, predictions and pins."""

import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from sharpi.engine.backends.expert_tier import ExpertTier
from sharpi.engine.backends.gpu.report import GpuReport
from sharpi.engine.backends.gpu.slots import GpuSlots, HostFilling
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.backends.slot_tiers import announce_pin, missed_pin
from sharpi.experts.layer_stats import HitCount
from sharpi.experts.policy_trials import prefetch_note
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import ExpertView, RunFacts
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.recorded import MissMode, PassCounts
from sharpi.trial import Trial

# Returns the routes (rows, used) of each layer with slots.
StepRoutes = Callable[[], list[IntArray]]


class GpuTier:
    """Decides which experts of `layers` have slots, the miss mode, and prefetching."""

    def __init__(
        self,
        slots: GpuSlots,
        layers: SlottedLayers,
        passes: PassCounts,
        below: ExpertTier | None = None,
    ) -> None:
        self._slots, self._layers, self._below = slots, layers, below
        self._filling: HostFilling | None = None
        self._report = GpuReport(slots, layers)
        self._is_ready = False
        self.miss = Trial(slots.modes)  # the modes of handling missed experts
        self.trial = Trial((True, False), default=True) if slots.predicts else None
        self._num_accesses = 0  # an upper bound of the lookups
        # In lookups; None once nothing more will be pinned.
        self._next_pin = slots.policy.next_pin(-1)
        self._before_pin: HitCount | None = None
        self.notes: list[str] = []
        self.passes = passes

    def prepare(self) -> None:
        """Allocates the memory, and fills the slots with their first experts."""
        assert self._layers.tables
        if self._slots.is_filled_by_host and self._filling is None:
            self._filling = self._report.filling = HostFilling(
                self._slots.policy,
                self._layers,
                None if self._below is None else self._below.store,
                may_stop=self._slots.may_stop_filling,
            )
        self._is_ready = True

    @property
    def mode(self) -> MissMode:
        """The miss mode of the next token."""
        return self.miss.choice

    @property
    def shares(self) -> bool:
        """True if sequences may share a step: not while single tokens decide the miss mode."""
        return self.miss.is_settled

    @property
    def predicts(self) -> bool:
        """True if, at the next token, each layer prefetches the next layer's experts."""
        return self.may_predict(1)

    def may_predict(self, num_tokens: int) -> bool:
        """Returns True if layers prefetch the next one's experts, once the miss mode is decided."""
        if self.trial is None or not self.miss.is_settled:
            return False
        return self.trial.choice if num_tokens == 1 else self.trial.fastest

    @property
    def may_run_ahead(self) -> bool:
        """True if the GPU may begin a token early, as nothing is timed nor done by the host."""
        is_timed = not self.miss.is_settled or (self.trial and not self.trial.is_settled)
        slots = self._slots
        has_host = self.mode == "cpu" or slots.is_filled_by_host or slots.settings.computed
        return not is_timed and not has_host

    def begin_step(self, position: int) -> None:
        """Begins a step of tokens from `position` on; a new, unrelated text begins at 0."""
        self.prepare()
        if position == 0:
            self._layers.tables.reset_sequence()
            if self._filling is not None:
                self._filling.policy.reset_sequence()

    def end_step(
        self, num_tokens: int, seconds: float, routes: StepRoutes = list, *, is_decode: bool = True
    ) -> None:
        """Ends a step; `routes` returns its routes, and is only called if the host fills slots."""
        if self._filling is not None:
            seconds += self._fill(self._filling, routes(), num_tokens, is_decode=is_decode)
        per_token = len(self._slots.expert_bytes) * self._slots.policy.experts_per_token
        self._num_accesses += num_tokens * per_token
        if self._next_pin is not None and self._num_accesses >= self._next_pin:
            self._pin_if_due(self._next_pin)
        steps = self._report.prediction_steps
        if is_decode:
            steps.steps += 1
            steps.predicted += self.may_predict(num_tokens)
        if num_tokens != 1:
            return
        if self.trial is not None and self.miss.is_settled and self.trial.record(seconds):
            self.notes.append(prefetch_note(self.trial))
        filling = self._filling
        if filling is not None and filling.trial is not None and filling.trial.record(seconds):
            self.notes.append(_filling_note(filling.trial))
        if self.miss.record(seconds):
            self.notes.append(f"missed experts: {self.miss.fastest} is now the fastest mode")

    def _fill(
        self, filling: HostFilling, routes: list[IntArray], num_tokens: int, *, is_decode: bool
    ) -> float:
        """Moves experts by the host's policy; returns the seconds that this took."""
        start = time.perf_counter()
        is_prompt = not is_decode or any(len(ids) != num_tokens for ids in routes)
        filling.end_step(routes, is_prompt=is_prompt)
        return time.perf_counter() - start

    def _pin_if_due(self, due: int) -> None:
        """Pins the most used experts if the GPU has counted at least `due` lookups."""
        counted, policy = self._report.hit_count(), self._slots.policy
        self._num_accesses = counted.accesses
        if counted.accesses < due:
            return
        if self._filling is None:
            self._layers.tables.pin_most_used(policy.warm_pin)
        elif self._filling.policy.before_pin is None:
            return
        self._next_pin = policy.next_pin(counted.accesses)
        if self._before_pin is None:
            self._before_pin = counted
            announce_pin(policy, counted, "VRAM")

    def pin_note(self) -> str | None:
        """Returns a note if the most used experts were to be pinned and were not, else None."""
        if self._before_pin is not None or not self._is_ready:
            return None
        missed = missed_pin(self._slots.policy, self._report.hit_count().accesses, "VRAM")
        return missed or self._slots.why_no_pin

    def residents(self) -> dict[int, tuple[int, ...]]:
        """Returns the experts that have slots now, by layer; waits for the GPU."""
        return self._report.residents()

    def loads_and_pins(self) -> dict[int, tuple[int, list[int]]]:
        """Returns each layer's number of loads and pinned experts; empty before slots exist."""
        return self._report.loads_and_pins() if self._is_ready else {}

    def stats(self, run: RunFacts) -> ExpertStats | None:
        """Returns the statistics so far, None before there are slots; waits for the GPU."""
        if not self._is_ready:
            return None
        is_on = None if self.trial is None else self.trial.fastest
        notes = tuple(self._all_notes())
        stats = self._report.stats(run, is_on, self._before_pin, notes)
        if self._below is None:
            return stats
        below = self._below.stats(replace(run, skew=None, notes=()))
        return replace(stats, below=below, failed_reads=below.failed_reads)

    def view(self) -> ExpertView | None:
        """Returns which experts have slots, and their numbers of uses; None before slots exist."""
        return self._report.view() if self._is_ready else None

    def close(self) -> None:
        """Frees the policy on the host; a second call does nothing."""
        if self._filling is not None:
            self._filling.policy.close()

    def _all_notes(self) -> Iterator[str]:
        if self.miss.seconds:
            times = ", ".join(f"{m} {1e3 * s:.2f} ms" for m, s in self.miss.seconds.items())
            yield f"time per token by miss mode: {times}; now {self.miss.fastest}"
        yield from filter(None, [self._slots.why_no_pin])
        yield from self.passes.notes
        yield from self.notes


def _filling_note(trial: Trial[bool]) -> str:
    ratio = f"tokens took {trial.ratio(True, False):.2f} times as long with moves as without"
    if trial.fastest:
        return f"experts move between RAM and VRAM again: {ratio}"
    return f"the experts in VRAM stay as they are for now: {ratio}"


class TierSteps:
    """Begins and ends steps for slots in VRAM and those `below` in RAM; each may be None."""

    def __init__(self, gpu_tier: GpuTier | None, below: ExpertTier | None) -> None:
        self._gpu_tier, self._below = gpu_tier, below
        self._start = self._end = 0.0  # of the last step

    def begin(self, segments: Sequence[Segment], num_tokens: int) -> tuple[MissMode, bool]:
        """Begins a step; returns its miss mode, and whether its layers prefetch experts."""
        self._start, tier = time.perf_counter(), self._gpu_tier
        if tier is not None:
            tier.begin_step(min(segment.position for segment in segments))
        reads_early = self._below is not None and self._below.begin_step(segments, num_tokens)
        if tier is None:
            return "bus", False
        return tier.mode, reads_early or tier.may_predict(num_tokens)

    @property
    def may_run_ahead(self) -> bool:
        """True if the next step may begin before this one has ended."""
        return self._gpu_tier is None or self._gpu_tier.may_run_ahead

    def end(
        self,
        num_tokens: int,
        routes: StepRoutes,
        *,
        is_decode: bool,
        was_started_ahead: bool = False,
    ) -> None:
        """Ends a step, begun early or not; `routes` returns those of layers with slots."""
        before, self._end = self._end, time.perf_counter()
        seconds = self._end - (before if was_started_ahead else self._start)
        if self._below is not None:
            self._below.end_step(num_tokens, seconds)
        if self._gpu_tier is not None:
            self._gpu_tier.end_step(num_tokens, seconds, routes, is_decode=is_decode)
