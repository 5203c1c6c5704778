"""The records of a run's experts that were requested: statistics, a trace, a profile.

All are written when the engine closes, however the run ended; a path that cannot be written gives a
warning and costs nothing else. Modules that only some runs need are imported by those: a model that
is used as mapped starts without them.
"""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.config import ExpertConfig
from sharpi.engine.backends.kept_routes import SegmentRoutes, segment_routes, step_rows
from sharpi.engine.backends.model_part import Segment, SlotTier, StepRoutes
from sharpi.engine.records.route_log import RouteLog
from sharpi.errors import TraceFileError
from sharpi.experts.profile import ExpertProfile, save_profile
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.view import ExpertView

_WATCHED_SECONDS = 5.0  # after a view of the experts, uses are counted for the next one


class ExpertRecords:
    """Records one run of one model; `moe_layers` are the indices of the layers with experts."""

    def __init__(
        self,
        asked: ExpertConfig,
        name: str,
        model: ModelConfig,
        moe_layers: tuple[int, ...],
        expert_bytes: tuple[int, ...],
        tier: "ExpertTier | None",
        profile: ExpertProfile | None,
    ) -> None:
        self._asked, self._name, self._model = asked, name, model
        self._moe_layers, self._tier, self._profile = moe_layers, tier, profile
        self._num_tokens = 0
        self._uses = np.zeros((model.num_layers, model.num_experts), np.int64)
        self._counts_uses = bool(asked.stats or asked.profile)
        self._watched_until = 0.0
        self._gpu: SlotTier | None = None
        trace = asked.trace if moe_layers else None
        self._log = RouteLog(trace, model, expert_bytes) if trace else None

    def watch(self, gpu: SlotTier | None) -> None:
        """Takes the counts from a GPU's slots, if it has some."""
        self._gpu = gpu

    @property
    def keeps_router_logits(self) -> bool:
        """True if the step has to keep the router's logits of all its tokens."""
        return self._log is not None

    def step(self, segments: Sequence[Segment], program: StepRoutes) -> None:
        """Records a step of these segments."""
        self._num_tokens += sum(len(segment.ids) == 1 for segment in segments)
        if self._tier is None and self._counts_now:
            self._count(step_rows(segments, program.routes, trims=self._trims))
        if self._log is None and not self._asked.trace_routes:
            return
        each = list(segment_routes(segments, program, trims=self._trims))
        if self._log is not None:
            self._log.step(each, self._stall_seconds())
        if self._asked.trace_routes:
            for routes in each:
                self._print(routes)

    @property
    def _trims(self) -> bool:
        """True if the last MoE layer is the model's last one, which only computes outputs."""
        is_last = self._moe_layers[-1:] == (self._model.num_layers - 1,)
        return is_last and not self.keeps_router_logits

    @property
    def _counts_now(self) -> bool:
        return self._counts_uses or time.monotonic() < self._watched_until

    def _count(self, routes: list[IntArray]) -> None:
        num_experts = self._uses.shape[1]
        for layer, ids in zip(self._moe_layers, routes, strict=True):
            self._uses[layer] += np.bincount(ids.ravel(), minlength=num_experts)

    def _stall_seconds(self) -> float:
        counts = self._tier.store.counts() if self._tier else []
        return sum(count.stall_ns for count in counts) / 1e9

    def _print(self, of: SegmentRoutes) -> None:
        """Prints routes of the segment's last token, loads so far and pinned experts to stderr."""
        counts = self._tier.store.counts() if self._tier else None
        pinned = self._tier.policy.states().pinned if self._tier else None
        for layer, ids in zip(self._moe_layers, of.routes, strict=True):
            used = " ".join(map(str, ids[-1])) if len(ids) else "none"
            line = f"moe: position {of.segment.position} layer {layer} experts {used}"
            if counts is not None and pinned is not None:
                pins = " ".join(map(str, pinned[layer].nonzero()[0])) or "none"
                line += f" loads {counts[layer].loads} pinned {pins}"
            print(line, file=sys.stderr)

    def stats(self) -> "ExpertStats | None":
        """Returns the statistics so far; None without experts, or if nothing was counted."""
        if not self._moe_layers:
            return None
        if self._gpu is not None:
            return self._gpu.stats(self._name, self._num_tokens)
        if self._tier is not None:
            return self._tier.stats(self._name, self._num_tokens)
        if not self._counts_uses:
            return None
        from sharpi.experts.stats.stats_collect import stats_of_mapped

        return stats_of_mapped(
            self._name,
            self._num_tokens,
            self._uses,
            self._moe_layers,
            self._model.num_experts_per_token,
        )

    def view(self) -> "ExpertView | None":
        """Returns which experts are resident and used, between two steps; None without experts.

        If nothing is recorded, uses are only counted for some seconds after each call.
        """
        if not self._moe_layers:
            return None
        if self._gpu is not None:
            return self._gpu.view(self._num_tokens)
        from sharpi.experts.stats.view import view_of_mapped, view_of_store

        if self._tier is not None:
            return view_of_store(self._tier.store, self._moe_layers, self._num_tokens)
        self._watched_until = time.monotonic() + _WATCHED_SECONDS
        return view_of_mapped(self._uses, self._moe_layers, self._num_tokens)

    def close(self) -> tuple[str, ...]:
        """Writes the requested records; returns warnings."""
        warnings = [self._close_stats(), self._close_profile(), self._close_trace()]
        return tuple(warning for warning in warnings if warning)

    def _close_stats(self) -> str | None:
        if self._asked.stats is None:
            return None
        stats = self.stats()
        if stats is None:
            why = "nothing was computed" if self._moe_layers else "the model has no routed experts"
            return f"no expert stats were written: {why}"
        from sharpi.experts.stats.stats_file import save_stats

        return save_stats(self._asked.stats, stats)

    def _close_profile(self) -> str | None:
        if self._asked.profile is None:
            return None
        if not self._moe_layers:
            return "no expert profile was written: the model has no routed experts"
        uses = self._all_uses()
        if not uses.any():
            return None
        profile = ExpertProfile(self._name, uses)
        if self._profile is not None:
            profile = self._profile.merged(uses)
        return save_profile(self._asked.profile, profile)

    def _all_uses(self) -> npt.NDArray[np.int64]:
        uses = self._uses if self._tier is None else self._tier.policy.states().accesses
        seen = None if self._gpu is None else self._gpu.view(self._num_tokens)
        if seen is not None:
            uses = uses.copy()
            uses[list(seen.layers)] = seen.uses
        return uses

    def _close_trace(self) -> str | None:
        if self._log is None:
            has_experts = self._asked.trace is None or self._moe_layers
            return None if has_experts else "no trace was written: the model has no routed experts"
        try:
            return self._log.close()
        except TraceFileError as error:
            return str(error)
