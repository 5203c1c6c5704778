"""The requested records of a run's experts: statistics, a trace, a profile.

All are written when the engine closes, however the run ended. A path that cannot be written only
gives a warning.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import (
    Segment,
    SlotTier,
    StepRoutes,
    segment_routes,
    step_rows,
)
from sharpi.errors import TraceFileError
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.program import IntArray
from sharpi.settings import RunConfig
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import Tier, TierPlan

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.records.route_log import RouteLog, RoutePrinter
    from sharpi.experts.profile import ExpertProfile
    from sharpi.experts.stats.stats import ExpertStats, Skew
    from sharpi.experts.stats.stats_collect import ExpertView, RunFacts

_WATCHED_SECONDS = 5.0  # after a view of the experts, uses are counted for the next one


class ExpertRecords:
    """Records the use of experts, counted by `gpu` slots, or else by `tier`, the slots in RAM."""

    def __init__(
        self,
        run: RunConfig,
        name: str,
        model: ModelConfig,
        facts: ModelFacts,
        plan: TierPlan | None,
        profile: "ExpertProfile | None",
        tier: "ExpertTier | None",
        gpu: SlotTier | None,
    ) -> None:
        self._config, self._model, self._name = run.experts, model, name
        self._tier, self._gpu, self._profile = tier, gpu, profile
        layers = enumerate(facts.layers[: model.num_layers])
        # Of this machine's layers with experts, the bytes of one expert.
        self._expert_bytes = {i: own.expert_bytes or 0 for i, own in layers if own.num_experts}
        self._moe_layers = tuple(self._expert_bytes)
        planned = () if plan is None else plan.layers
        self._in_vram = frozenset(own.index for own in planned if own.experts is Tier.VRAM)
        self._num_tokens = self._num_beside = self._num_prompt_tokens = 0
        shape = (model.num_layers, model.num_experts)
        # uses by tokens, and steps of prompts and decoding steps that used an expert
        self._uses, *self._steps = (np.zeros(shape, np.int64) for _ in range(3))
        self._counts_uses = bool(run.experts.stats or run.experts.profile)
        self._watched_until = 0.0
        self._is_reported = False
        self._others: Callable[[], Sequence[ExpertStats]] = tuple
        self._printer: RoutePrinter | None = None
        self._log: RouteLog | None = None
        self._skew: Skew | None = None
        self._begin(run.batch_size)

    def _begin(self, batch_size: int) -> None:
        """Begins what was asked for, with modules that few runs need."""
        config, sizes = self._config, tuple(self._expert_bytes.values())
        if config.trace_routes:
            from sharpi.engine.records.route_log import RoutePrinter

            self._printer = RoutePrinter(self._moe_layers, self._tier, self._gpu)
        if config.trace and sizes:
            from sharpi.engine.records.route_log import RouteLog

            self._log = RouteLog(config.trace, self._model, sizes)
        if config.stats and sizes:
            from sharpi.experts.stats.stats import Skew

            self._skew = Skew(self._model.num_experts, batch_size)

    def report_uses(self) -> None:
        """Counts experts from now on, for the first rank, which writes statistics of all ranks."""
        self._is_reported = self._counts_uses = True

    def stats_to_report(self) -> "ExpertStats | None":
        """Returns statistics for the first rank; None without `report_uses` or experts."""
        return self.stats() if self._is_reported else None

    def take_others(self, others: "Callable[[], Sequence[ExpertStats]]") -> None:
        """Sets a function that returns other ranks' statistics, to be written with this rank's."""
        self._others = others

    @property
    def reads_routes(self) -> bool:
        """True if `step` reads the routes of decoded tokens."""
        return self._counts_now or self._log is not None or self._printer is not None

    def step(self, segments: Sequence[Segment], program: StepRoutes) -> None:
        """Records a step of these segments."""
        is_decode = self._count_tokens(segments)
        if self._counts_now and not self._counted_by_slots.issuperset(self._moe_layers):
            self._count(step_rows(segments, program.routes, trims=self._trims), is_decode)
        if self._log is None and self._printer is None and (self._skew is None or is_decode):
            return
        each = list(segment_routes(segments, program, trims=self._trims))
        if self._log is not None:
            self._log.step(each, self._stall_seconds())
        for routes in each:
            if self._skew is not None and len(routes.segment.ids) - routes.segment.num_drafts > 1:
                self._skew.add(routes.routes)
        if self._printer is not None:
            self._printer.step(each, trims=self._trims)

    def _count_tokens(self, segments: Sequence[Segment]) -> bool:
        """Counts a step's tokens; returns True if all of them are decoded."""
        decoded, is_decode = 0, True
        for segment in segments:
            if len(segment.ids) - segment.num_drafts == 1:
                decoded += len(segment.ids)
            else:
                is_decode = False
        self._num_tokens += decoded
        if not is_decode:
            self._num_prompt_tokens += sum(len(segment.ids) for segment in segments) - decoded
            self._num_beside += decoded if self._gpu is None else 0
        return is_decode

    @property
    def _trims(self) -> bool:
        """True if the last MoE layer is the model's last layer, and only computes outputs."""
        is_last = self._moe_layers[-1:] == (self._model.num_layers - 1,)
        return is_last and self._log is None and not self._model.has_head

    @property
    def _counted_by_slots(self) -> frozenset[int]:
        """The layers whose uses the slots in RAM count."""
        has_slots = self._tier is not None and not self._tier.is_mapped
        return self._tier.layers if has_slots and self._tier else frozenset()

    @property
    def _counts_now(self) -> bool:
        gave_slots_up = self._tier is not None and self._tier.is_mapped
        return self._counts_uses or gave_slots_up or time.monotonic() < self._watched_until

    def _count(self, routes: list[IntArray], is_decode: bool) -> None:
        num_experts, counted = self._uses.shape[1], self._counted_by_slots
        for layer, ids in zip(self._moe_layers, routes, strict=True):
            if layer in counted:
                continue
            uses = np.bincount(ids.ravel(), minlength=num_experts)
            self._uses[layer] += uses
            self._steps[int(is_decode)][layer] += uses > 0

    def _stall_seconds(self) -> float:
        return self._tier.stall_seconds() if self._tier else 0.0

    def stats(self) -> "ExpertStats | None":
        """Returns the statistics so far; None without experts, or if nothing was counted."""
        if not self._moe_layers:
            return None
        from sharpi.experts.stats.stats_collect import (
            MappedUses,
            Residents,
            stats_of_resident,
            with_resident,
        )

        counted = MappedUses(self._uses, *self._steps)
        residents = Residents(counted, self._expert_bytes, self._in_vram)
        if self._gpu is not None:
            found = self._gpu.stats(self._run_facts())
        elif self._tier is not None:
            found = self._tier.stats(self._run_facts(), counted)
        elif self._counts_uses:
            used = self._model.num_experts_per_token
            return stats_of_resident(self._run_facts(), residents, used)
        else:
            return None
        return with_resident(found, residents) if found and self._counts_uses else found

    def _run_facts(self) -> "RunFacts":
        from sharpi.experts.stats.stats_collect import RunFacts

        note = "for the trace, the last layer computed all tokens of prompts, not only the last one"
        return RunFacts(
            model=self._name,
            num_prompt_tokens=self._num_prompt_tokens,
            num_tokens=self._num_tokens,
            num_beside=self._num_beside,
            skew=None if self._skew is None else self._skew.stats,
            notes=(note,) if self._log is not None else (),
        )

    def view(self) -> "ExpertView | None":
        """Returns which experts are resident and used between two steps; None without experts."""
        if not self._moe_layers:
            return None
        if self._gpu is not None:
            return self._gpu.view()
        from sharpi.experts.stats.stats_collect import view_of_mapped

        self._watched_until = time.monotonic() + _WATCHED_SECONDS
        if self._tier is not None:
            return self._tier.view(self._moe_layers, self._uses)
        return view_of_mapped(self._uses, self._moe_layers)

    def close(self) -> tuple[str, ...]:
        """Writes the requested records; returns warnings."""
        warnings = [self._close_stats(), self._close_profile(), self._close_trace()]
        if self._config.warm_pin:
            warnings += [tier.pin_note() for tier in (self._gpu, self._tier) if tier is not None]
        return tuple(warning for warning in warnings if warning)

    def _close_stats(self) -> str | None:
        if self._config.stats is None:
            return None
        stats = self._stats_of_all()
        if stats is None or not stats.total.accesses:
            why = "nothing was computed" if self._moe_layers else self._why_no_layers()
            return f"no expert stats were written: {why}"
        from sharpi.experts.stats.stats_file import save_stats

        return save_stats(self._config.stats, stats)

    def _why_no_layers(self) -> str:
        if self._model.is_moe:
            return "this machine ran no layers with experts"
        return "the model has no routed experts"

    def _stats_of_all(self) -> "ExpertStats | None":
        """Returns the statistics of all ranks' layers."""
        own, others = self.stats(), self._others()
        if not others:
            return own
        from sharpi.experts.stats.stats_merge import joined_stats

        return joined_stats([own, *others] if own else list(others), self._run_facts())

    def _close_profile(self) -> str | None:
        if self._config.profile is None:
            return None
        others = self._others()
        if not self._moe_layers and not others:
            return f"no expert profile was written: {self._why_no_layers()}"
        uses = self._all_uses()
        for layer in (layer for stats in others for layer in stats.layers):
            uses[layer.layer] += layer.uses
        if not uses.any():
            return None
        from sharpi.experts.profile import ExpertProfile, save_profile

        profile = ExpertProfile(self._name, uses)
        if self._profile is not None:
            profile = self._profile.merged(uses)
        return save_profile(self._config.profile, profile)

    def _all_uses(self) -> npt.NDArray[np.int64]:
        uses = self._uses if self._tier is None else self._tier.uses() + self._uses
        seen = None if self._gpu is None else self._gpu.view()
        if seen is not None:
            uses = uses.copy()
            uses[list(seen.layers)] = seen.uses
        return uses

    def _close_trace(self) -> str | None:
        if self._log is None:
            has_experts = self._config.trace is None or self._moe_layers
            return None if has_experts else f"no trace was written: {self._why_no_layers()}"
        try:
            return self._log.close()
        except TraceFileError as error:
            return str(error)
