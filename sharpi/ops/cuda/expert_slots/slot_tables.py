"""The slots of all layers' experts on a device, and what is started to use, fill and resize them.

Residency is what the tables of addresses say, by which the experts' kernels find every expert.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.expert_slots.slot_layer import SlotLayer, SlotMemory, table_of
from sharpi.ops.cuda.expert_slots.slot_learning import SlotLearning
from sharpi.ops.cuda.expert_slots.slot_state import (
    SlotCounts,
    SlotStates,
    counts_of,
    first_state,
    num_slots_of,
    state_bytes,
    states_of,
)
from sharpi.ops.cuda.launchers.gather_experts import gather_experts
from sharpi.ops.cuda.launchers.slot_policy import (
    MAX_EXPERTS,
    MAX_USED,
    KernelMissMode,
    PolicyRules,
    slot_batch,
    slot_policy,
    slot_prefetch,
    slot_resize,
)

DEVICE_KINDS = frozenset({0, 4, 5, 6, 7, 8})  # the policies that slot_rules.cuh has
_LIST_HEADER_BYTES, _LOAD_BYTES = 16, 16


class SlotTables:
    """State, tables and lists of every layer with experts; `layers` by the model's layer number.

    Whoever makes it copies the bytes of `first_loads` itself, before the first use. Launches of a
    layer go in order: those of `prefetch`, `use`, then the experts' kernels.
    """

    def __init__(self, device: Device, rules: PolicyRules, layers: Mapping[int, SlotLayer]) -> None:
        assert rules.kind in DEVICE_KINDS, "a policy that the device does not have"
        assert rules.num_experts <= MAX_EXPERTS, "too many experts"
        assert rules.experts_per_token <= MAX_USED, "too many experts of a token"
        self._device, self._rules, self._layers = device, rules, dict(layers)
        self._num_bytes = state_bytes(rules.num_experts)
        self._words = self._span(len(layers) * self._num_bytes)
        self._learning = SlotLearning(device, rules, layers) if rules.is_learned else None
        most = max((layer.num_slots for layer in layers.values()), default=0)
        self._all_loads = self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * most)
        self.overflow = self._span(4)
        self.clear_overflow()
        self._memory: dict[int, SlotMemory] = {}
        for place, (number, layer) in enumerate(layers.items()):
            words = self._words.part(place * self._num_bytes, self._num_bytes)
            device.upload(words, first_state(layer.first, rules.kind, rules.num_experts))
            self._memory[number] = self._memory_of(number, layer, words)
            layer.fill_tables(device, layer.first.residents(rules.kind))

    def _memory_of(self, number: int, layer: SlotLayer, words: Span) -> SlotMemory:
        used = self._rules.experts_per_token
        learned = self._learning.map_of(number) if self._learning is not None else None
        spans = partial(table_of, self._device)
        return SlotMemory(
            state=layer.state(words, learned, spans),
            pieces=layer.gather_pieces(spans),
            loads=self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * used),
            early_loads=self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * layer.num_early),
            outcomes=self._span(4 * used),
        )

    def _span(self, num_bytes: int) -> Span:
        return Span(self._device.allocate(num_bytes), 0, num_bytes)

    def first_loads(self, layer: int) -> list[tuple[int, int]]:
        """(expert, slot): whose bytes have to be in slots before the first use."""
        residents = self._layers[layer].first.residents(self._rules.kind)
        return [(expert, slot) for slot, expert in enumerate(residents)]

    def use(self, layer: int, ids: Span, miss: KernelMissMode | None = None) -> tuple[Launch, ...]:
        """What follows the router of one token: `ids` (experts per token,) int32, best first.

        `miss`: what becomes of missed experts, None for what the rules say.
        """
        memory, rules = self._memory[layer], self._rules
        decide = slot_policy(
            rules,
            memory.state,
            ids,
            memory.loads,
            memory.outcomes,
            self.overflow,
            layer=layer,
            miss=rules.miss if miss is None else miss,
            routes=None if self._learning is None else self._learning.routes,
        )
        return decide, self._gather(memory, memory.loads, rules.experts_per_token)

    def outcomes(self, layer: int) -> Span:
        """(experts per token,) int32: the `Outcome` of each of the token's experts."""
        return self._memory[layer].outcomes

    def use_batch(self, layer: int, ids: Span, tokens: int) -> tuple[Launch, ...]:
        """What follows the router of a batch: `ids` (tokens, experts per token) int32."""
        memory, rules = self._memory[layer], self._rules
        remembered = None if self._learning is None else self._learning.remembered_of(layer)
        sizes = {"tokens": tokens, "used": rules.experts_per_token}
        decide = slot_batch(rules, memory.state, ids, self._all_loads, remembered, **sizes)
        return decide, self._gather(memory, self._all_loads, memory.state.num_slots)

    def end_batch(self, tokens: int) -> tuple[Launch, ...]:
        """What follows a batch's last layer."""
        return () if self._learning is None else self._learning.end_batch(tokens)

    def prefetch(
        self, layer: int, predictions: Span, after: int, budget: int
    ) -> tuple[Launch, ...]:
        """Fetches predicted experts of `layer` if layer `after`, under way, leaves the link idle.

        `predictions` (experts per token,) int32, best first.
        """
        memory, now = self._memory[layer], self._memory[after].loads
        decide = slot_prefetch(
            self._rules, memory.state, predictions, now, memory.early_loads, budget=budget
        )
        return decide, self._gather(memory, memory.early_loads, memory.state.num_early)

    def resize(self, layer: int, num_slots: int) -> None:
        """Between tokens: slots from `num_slots` on are no longer used, or used again.

        Experts leave in the policy's own order, pinned ones last; those that stay move to the
        front. Raises ValueError for more slots than there is memory for.
        """
        memory = self._memory[layer]
        if not 0 <= num_slots <= memory.state.num_slots:
            raise ValueError(f"{num_slots} slots where there is room for {memory.state.num_slots}")
        wanted = min(num_slots, self._rules.num_experts)
        self._run(slot_resize(self._rules, memory.state, self._all_loads, resized=wanted))
        self._run(self._gather(memory, self._all_loads, memory.state.num_slots))

    def set_memory(self, number: int, layer: SlotLayer, residents: Sequence[int]) -> None:
        """Between tokens: a layer's slots are elsewhere from now on, and these experts in them."""
        memory = self._memory[number]
        spans = partial(table_of, self._device)
        self._layers[number] = layer
        self._memory[number] = replace(
            memory,
            state=layer.state(memory.state.words, memory.state.learned, spans),
            pieces=layer.gather_pieces(spans),
        )
        layer.fill_tables(self._device, residents)

    def pin_most_used(self, count: int) -> None:
        """Between tokens: each layer pins those of its `count` most used for which there is room.

        Up to half of its slots; who has no slot is loaded.
        """
        for memory in self._memory.values():
            loads = self._all_loads
            self._run(slot_resize(self._rules, memory.state, loads, num_pinned=count))
            self._run(self._gather(memory, loads, memory.state.num_slots))

    def reset_sequence(self) -> None:
        """A new, unrelated text."""
        if self._learning is not None:
            self._learning.forget_routes()

    def read_counts(self) -> dict[int, SlotCounts]:
        """What every layer has counted; waits for the device."""
        return {layer: counts_of(words) for layer, words in self._read().items()}

    def read_states(self) -> dict[int, SlotStates]:
        """Who is where in every layer; waits for the device."""
        return {layer: states_of(words) for layer, words in self._read().items()}

    def read_num_slots(self) -> dict[int, int]:
        """How many slots every layer has now; waits for the device."""
        return {layer: num_slots_of(words) for layer, words in self._read().items()}

    def clear_overflow(self) -> None:
        """`overflow` is 0 until a use has too little staging."""
        self._device.upload(self.overflow, np.zeros(1, np.int32))

    def _read(self) -> dict[int, NDArray[np.int32]]:
        words = np.empty((len(self._layers), self._num_bytes // 4), np.int32)
        self._device.download(self._words, words)
        return dict(zip(self._layers, words, strict=True))

    def _gather(self, memory: SlotMemory, loads: Span, most_loads: int) -> Launch:
        return gather_experts(
            loads,
            memory.pieces,
            experts=self._rules.num_experts,
            num_slots=memory.state.num_slots,
            num_early=memory.state.num_early,
            most_loads=most_loads,
        )

    def _run(self, launch: Launch) -> None:
        self._device.launch(launch)
