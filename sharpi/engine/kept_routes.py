"""What the segments of a step left behind, where a processor takes them one after the other."""

import numpy as np

from sharpi.engine.model_part import Segment, StepRoutes, Values
from sharpi.engine.segment_routes import segment_routes
from sharpi.ops.program import IntArray


class KeptRoutes:
    """Rows of all segments so far; `trims`: the last MoE layer works for wanted outputs only."""

    def __init__(self, *, trims: bool) -> None:
        self._trims = trims
        self.routes: list[IntArray] = []
        self.router_logits: list[Values] = []

    def add(self, segment: Segment, program: StepRoutes) -> None:
        """What the program did for a segment, before it runs another."""
        (own,) = segment_routes([segment], program, trims=self._trims)
        first = not self.routes
        before = [ids[:0] for ids in own.routes] if first else self.routes
        self.routes = [np.concatenate(p) for p in zip(before, own.routes, strict=True)]
        logits = [x[:0] for x in own.router_logits] if first else self.router_logits
        self.router_logits = [
            np.concatenate(p) for p in zip(logits, own.router_logits, strict=True)
        ]
