"""SlotLearning: the state of the policy learned-keep on the device.

The policy scores a layer's experts from recent routes with a learned linear map.
"""

from collections.abc import Iterable

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    BATCH_MEMORY,
    INPUT_WORDS,
    RANKS,
    Learning,
    PolicyRules,
    slot_learn_batch,
)
from sharpi.ops.slot_rules import real


class SlotLearning:
    """The learned linear maps of the policy learned-keep, one per layer, and the newest routes.

    A map turns recent routes into scores of the layer's experts, which decide what is evicted. The
    map of a layer without experts is unused.
    """

    def __init__(self, device: Device, rules: PolicyRules, layers: Iterable[int]) -> None:
        self._device, self._rules = device, rules
        self._layers = tuple(layers)
        self._map_bytes = 4 * rules.map_floats
        self._route_bytes = 4 * BATCH_MEMORY * rules.experts_per_token
        self._learning = Learning(
            maps=self._span(rules.num_layers * self._map_bytes),
            routes=self._span(4 * RANKS * rules.num_layers),
            remembered=self._span(rules.num_layers * self._route_bytes),
            has_experts=self._span(4 * rules.num_layers),
        )
        has_experts = np.zeros(rules.num_layers, np.int32)
        has_experts[list(self._layers)] = 1
        device.upload(self._learning.has_experts, has_experts)
        first = np.zeros(rules.map_floats, np.float32)
        experts = rules.num_experts
        first[:experts] = real("FirstBias")
        weights = first[2 * experts + INPUT_WORDS :].reshape(-1, experts)
        np.fill_diagonal(weights[:experts], real("FirstOfItself"))
        for layer in self._layers:
            device.upload(self.map_of(layer), first)
        self.forget_routes()

    def _span(self, num_bytes: int) -> Span:
        return Span(self._device.allocate(num_bytes), 0, num_bytes)

    @property
    def routes(self) -> Span:
        """(layers, 4) int32: the best experts of each layer's newest route, -1 where unknown."""
        return self._learning.routes

    def map_of(self, layer: int) -> Span:
        """Returns the memory of a layer's learned linear map."""
        return self._learning.maps.part(layer * self._map_bytes, self._map_bytes)

    def remembered_of(self, layer: int) -> Span:
        """Returns the memory for the last routes of a layer, (64, experts per token) int32."""
        return self._learning.remembered.part(layer * self._route_bytes, self._route_bytes)

    def end_batch(self, tokens: int) -> tuple[Launch, ...]:
        """Returns the launches that train all layers' maps after a batch's last layer."""
        return slot_learn_batch(self._rules, self._learning, tokens=tokens)

    def forget_routes(self) -> None:
        """Resets the newest routes to unknown, because a new text begins; keeps the maps."""
        unknown = np.full(RANKS * self._rules.num_layers, -1, np.int32)
        self._device.upload(self._learning.routes, unknown)
        inputs = 8 * self._rules.num_experts
        for layer in self._layers:
            span = self.map_of(layer).part(inputs, 4 * INPUT_WORDS)
            self._device.upload(span, np.zeros(INPUT_WORDS, np.int32))
