"""RoutePrinter: prints the routes of every token to stderr, with loads and pinned experts."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.kept_routes import SegmentRoutes
from sharpi.engine.backends.model_part import SlotTier

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier


class RoutePrinter:
    """Prints the routes in layers `moe_layers`, and loads and pins in layers with slots."""

    def __init__(
        self, moe_layers: tuple[int, ...], tier: "ExpertTier | None", gpu: SlotTier | None
    ) -> None:
        self._moe_layers, self._tier, self._gpu = moe_layers, tier, gpu

    def step(self, segments: Sequence[SegmentRoutes], *, trims: bool) -> None:
        """Prints a step, token by token; `trims`: the last layer only computes outputs."""
        slots = self._slots()
        for segment in segments:
            for line in _lines(segment, self._moe_layers, trims=trims):
                print(f"{line[1]}{slots.get(line[0], '')}", file=sys.stderr)

    def _slots(self) -> dict[int, str]:
        """Returns each layer's number of loads and its pins as text, for layers that have slots."""
        if self._gpu is not None:
            states = self._gpu.loads_and_pins()
        elif self._tier is not None and not self._tier.is_mapped:
            counts, pinned = self._tier.counts(), self._tier.policy.states().pinned
            states = {
                layer: (counts[layer].loads, pinned[layer].nonzero()[0].tolist())
                for layer in self._moe_layers
            }
        else:
            return {}
        return {
            layer: f" loads {loads} pinned {' '.join(map(str, pins)) or 'none'}"
            for layer, (loads, pins) in states.items()
        }


def _lines(
    of: SegmentRoutes, moe_layers: tuple[int, ...], *, trims: bool
) -> Iterator[tuple[int, str]]:
    """Yields, for each token and layer, the layer and a line with its experts.

    If `trims`, the last layer only has rows for outputs.
    """
    segment = of.segment
    outputs = segment.outputs.tolist()
    for token in range(len(segment.ids)):
        for layer, ids in zip(moe_layers, of.routes, strict=True):
            row = token
            if trims and layer == moe_layers[-1]:
                if token not in outputs:
                    continue
                row = outputs.index(token)
            used = " ".join(map(str, np.asarray(ids[row]).tolist()))
            yield layer, f"moe: position {segment.position + token} layer {layer} experts {used}"
