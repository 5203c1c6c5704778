"""TierSteps: begins, times and ends the steps of a GPU for its expert tiers."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from sharpi.engine.backends.expert_tier import ExpertTier
from sharpi.engine.backends.gpu.tier import GpuTier, StepRoutes
from sharpi.engine.backends.model_part import Segment
from sharpi.ops.cuda.recorded import MissMode


class StepMode(NamedTuple):
    """The miss mode of a step, and whether its layers prefetch the next layer's experts."""

    misses: MissMode = "stream"
    predicts: bool = False


class TierSteps:
    """Begins and ends a GPU's steps for the slots in VRAM and for those in RAM.

    `gpu_tier` has the slots in VRAM, and `below` those in RAM; each is None if there are none.
    Calls of `begin` and `end` alternate.
    """

    def __init__(self, gpu_tier: GpuTier | None, below: ExpertTier | None) -> None:
        self._gpu_tier, self._below = gpu_tier, below
        self._start = self._end = 0.0  # of the last step

    def begin(self, segments: Sequence[Segment], num_tokens: int) -> StepMode:
        """Begins a step; returns its miss mode, and whether its layers prefetch experts."""
        self._start, tier = time.perf_counter(), self._gpu_tier
        if tier is not None:
            tier.begin_step(min(segment.position for segment in segments))
        reads_early = self._below is not None and self._below.begin_step(segments, num_tokens)
        if tier is None:
            return StepMode()
        return StepMode(tier.mode, reads_early or tier.may_predict(num_tokens))

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
        """Ends a step, which the GPU has computed; `routes` returns routes of layers with slots.

        `was_started_ahead`: the GPU began the step early, right after the previous one.
        """
        before, self._end = self._end, time.perf_counter()
        seconds = self._end - (before if was_started_ahead else self._start)
        if self._below is not None:
            self._below.end_step(num_tokens, seconds)
        if self._gpu_tier is not None:
            self._gpu_tier.end_step(num_tokens, seconds, routes, is_decode=is_decode)
