"""Collects the routes of each segment of a step, even if the step runs in several passes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sharpi.engine.backends.model_part import Segment, StepRoutes, Values
from sharpi.ops.cpu.program import IntArray


class SegmentRoutes(NamedTuple):
    """One segment's `routes` (rows, used) and `router_logits` (rows, experts), by MoE layer.

    If the last layer is trimmed, it only has rows for the requested outputs.
    """

    segment: Segment
    routes: list[IntArray]
    router_logits: list[Values]


def segment_routes(
    segments: Sequence[Segment], program: StepRoutes, *, trims: bool
) -> Iterator[SegmentRoutes]:
    """Yields each segment's routes; `trims`: the last MoE layer has rows for outputs only."""
    routes, router_logits = program.routes, program.router_logits
    token = output = 0
    for segment in segments:
        tokens = slice(token, token := token + len(segment.ids))
        outputs = slice(output, output := output + len(segment.outputs))
        of_layer = [tokens] * len(routes)
        if trims and of_layer:
            of_layer[-1] = outputs
        own = [ids[rows] for ids, rows in zip(routes, of_layer, strict=True)]
        yield SegmentRoutes(segment, own, [values[tokens] for values in router_logits])


def step_rows(
    segments: Sequence[Segment], routes: list[IntArray], *, trims: bool
) -> list[IntArray]:
    """Returns each layer's routes (rows, used) of these segments.

    Further rows of `routes`, which an earlier step of more tokens left, are cut off.
    """
    num_tokens = sum(len(segment.ids) for segment in segments)
    rows = [ids[:num_tokens] for ids in routes]
    if trims and rows:
        rows[-1] = routes[-1][: sum(len(segment.outputs) for segment in segments)]
    return rows


class KeptRoutes:
    """Collects the routes of all segments of a step that runs in several passes.

    `trims`: the last MoE layer has rows for outputs only.
    """

    def __init__(self, *, trims: bool) -> None:
        self._trims = trims
        self._kept: dict[int, SegmentRoutes] = {}

    def add(self, segments: Mapping[int, Segment], program: StepRoutes) -> None:
        """Adds the routes of segments in the program's last run.

        `segments` are keyed by their first rows in the step.
        """
        dealt = segment_routes(list(segments.values()), program, trims=self._trims)
        self._kept |= zip(segments, dealt, strict=True)

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids (rows, used) of each MoE layer, in the order of the step's tokens."""
        layers = zip(*(own.routes for own in self._in_order()), strict=True)
        return [np.concatenate(layer) for layer in layers]

    @property
    def router_logits(self) -> list[Values]:
        """Router logits (rows, experts) of each MoE layer, in the order of the step's tokens.

        Empty unless the program keeps them.
        """
        layers = zip(*(own.router_logits for own in self._in_order()), strict=True)
        return [np.concatenate(layer) for layer in layers]

    def _in_order(self) -> list[SegmentRoutes]:
        return [self._kept[row] for row in sorted(self._kept)]
