"""What the segments of a step left behind, where a processor takes them in several passes."""

from collections.abc import Mapping

import numpy as np

from sharpi.engine.model_part import Segment, StepRoutes, Values
from sharpi.engine.segment_routes import SegmentRoutes, segment_routes
from sharpi.ops.program import IntArray


class KeptRoutes:
    """Rows of all segments so far; `trims`: the last MoE layer works for wanted outputs only."""

    def __init__(self, *, trims: bool) -> None:
        self._trims = trims
        self._kept: dict[int, SegmentRoutes] = {}

    def add(self, segments: Mapping[int, Segment], program: StepRoutes) -> None:
        """What the program did for segments, by their first rows in the step; before it runs on."""
        dealt = segment_routes(list(segments.values()), program, trims=self._trims)
        self._kept |= zip(segments, dealt, strict=True)

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids, (rows, used) for each MoE layer, in the order of the step's tokens."""
        layers = zip(*(own.routes for own in self._in_order()), strict=True)
        return [np.concatenate(layer) for layer in layers]

    @property
    def router_logits(self) -> list[Values]:
        """Those of each router, where they were kept, in the same order."""
        layers = zip(*(own.router_logits for own in self._in_order()), strict=True)
        return [np.concatenate(layer) for layer in layers]

    def _in_order(self) -> list[SegmentRoutes]:
        return [self._kept[row] for row in sorted(self._kept)]
