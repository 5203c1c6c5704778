"""LastLayerCounts: counts which experts tokens use after which experts of the previous layer."""

from collections.abc import Iterable

import numpy as np

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules, slot_last_layer

MOST_ROWS = 32  # a step with more tokens is not counted


class LastLayerCounts:
    """The counts for the predictor last-layer, and each layer's latest routes, on the device.

    For each of `layers`, it counts how often tokens that used an expert of the previous layer used
    each expert of this layer.
    """

    def __init__(self, device: Device, rules: PolicyRules, layers: Iterable[int]) -> None:
        self._device, self._rules = device, rules
        unknown = np.full((MOST_ROWS, rules.experts_per_token), -1, np.int32)
        counts = np.zeros((1 + rules.num_experts, rules.num_experts), np.float32)
        self._counts, self._previous_routes = dict[int, Span](), dict[int, Span]()
        self._routes = dict[int, Span]()
        previous = self._uploaded(unknown)
        for layer in layers:
            self._counts[layer] = self._uploaded(counts)
            self._previous_routes[layer] = previous
            previous = self._routes[layer] = self._uploaded(unknown)

    def _uploaded(self, array: HostArray) -> Span:
        span = Span(self._device.allocate(array.nbytes), 0, array.nbytes)
        self._device.upload(span, array)
        return span

    def predict(self, layer: int, after: int, ids: Span, predicted: Span, row: int = 0) -> Launch:
        """Returns the launch that predicts a layer's experts from a token's route in layer `after`.

        `after` is the layer before `layer`, and `ids` its route. The launch also adds this route to
        the counts of `after`. `row` is the token's row in its step.
        """
        return slot_last_layer(
            self._rules, self._counts[after], self._counts[layer], ids,
            self._row(self._previous_routes[after], row), self._row(self._routes[after], row),
            predicted,
        )  # fmt: skip

    def _row(self, routes: Span, row: int) -> Span:
        size = 4 * self._rules.experts_per_token
        return routes.part(row * size, size)

    def observe(self, layer: int, ids: Span, row: int = 0) -> Launch:
        """Returns the launch that adds a token's route in the last layer to the counts."""
        previous, kept = (
            self._row(each[layer], row) for each in (self._previous_routes, self._routes)
        )
        return slot_last_layer(self._rules, self._counts[layer], None, ids, previous, kept, None)
