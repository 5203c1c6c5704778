"""SlotTables: the slots of all layers on a device, and the launches that use and resize them.

The expert kernels find every expert by its address in these tables.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.expert_slots.slot_learning import SlotLearning
from sharpi.ops.cuda.expert_slots.slot_memory import SlotLayer
from sharpi.ops.cuda.expert_slots.slot_state import (
    PhaseSlotCounts,
    SlotStates,
    copy_wait,
    counts_of,
    first_state,
    prefetch_wait,
    resident_words,
    state_bytes,
    states_of,
    statistics_of,
)
from sharpi.ops.cuda.launchers.experts.host_items import CopyWait, gather_experts
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    MAX_EXPERTS,
    MAX_USED,
    BatchMissMode,
    KernelMissMode,
    LayerState,
    Phase,
    PolicyRules,
    slot_batch,
    slot_policy,
    slot_prefetch,
    slot_resize,
)
from sharpi.ops.slot_rules import whole


class SlotWords:
    """The slot states of the layers with numbers `layers`; the `read_` methods block the host."""

    def __init__(self, device: Device, num_experts: int, layers: Collection[int]) -> None:
        self._device, self._layers = device, tuple(layers)
        self._num_bytes = state_bytes(num_experts)
        num_bytes = len(layers) * self._num_bytes
        self._span = Span(device.allocate(num_bytes), 0, num_bytes)

    def of(self, layer: int) -> Span:
        """Returns the memory of one layer's slot state."""
        return self._span.part(self._layers.index(layer) * self._num_bytes, self._num_bytes)

    @cached_property
    def _saved(self) -> Span:
        return Span(self._device.allocate(self._span.num_bytes), 0, self._span.num_bytes)

    def save(self) -> None:
        """Saves the statistics once all steps so far are done; the host does not wait for them."""
        self._device.copy(self._saved, self._span)

    def restore(self) -> None:
        """Restores the saved statistics, but not which experts have slots; blocks the host."""
        words, saved_words = self._read(self._span), self._read(self._saved)
        for current, saved in zip(words, saved_words, strict=True):
            for part, saved_part in zip(statistics_of(current), statistics_of(saved), strict=True):
                part[:] = saved_part
        self._device.upload(self._span, words)

    def read_phases(self) -> dict[int, PhaseSlotCounts]:
        """Reads the statistics of every layer by phase."""
        return dict(zip(self._layers, map(counts_of, self._read(self._span)), strict=True))

    def read_states(self) -> dict[int, SlotStates]:
        """Reads the slots, pins and uses of all experts."""
        return dict(zip(self._layers, map(states_of, self._read(self._span)), strict=True))

    def _read(self, span: Span) -> NDArray[np.int32]:
        words = np.empty((len(self._layers), self._num_bytes // 4), np.int32)
        self._device.download(span, words)
        return words


class SlotMemory(Struct, frozen=True):
    """A layer's slots on the device, in the form of launch arguments."""

    layer: SlotLayer
    state: LayerState
    loads: Span  # the list of copies to slots
    early_loads: Span  # the list of copies to early slots
    outcomes: Span  # int32 (experts per token,), the `Outcome` of each expert of the last token


# The policies that a device has, by their numbers.
DEVICE_KINDS = frozenset(map(whole, ("Slru", "LearnedKeep", "Lru", "Lfru", "Static")))
_LIST_HEADER_BYTES, _LOAD_BYTES = 16, 16


class SlotTables:
    """The slot states, address tables and copy lists of `layers`, by layer number in `memory`.

    `words` has the slot states with the statistics. The caller copies a layer's first residents to
    slots 0, 1, ... before the first use. The order of a layer's launches is `prefetch`, `use`, then
    the experts' kernels.
    """

    def __init__(self, device: Device, rules: PolicyRules, layers: Mapping[int, SlotLayer]) -> None:
        assert rules.kind in DEVICE_KINDS, "a policy that the device does not have"
        assert rules.num_experts <= MAX_EXPERTS, "too many experts"
        assert rules.experts_per_token <= MAX_USED, "too many experts of a token"
        self._device, self._rules = device, rules
        self.words = SlotWords(device, rules.num_experts, layers)
        self._learning = SlotLearning(device, rules, layers) if rules.is_learned else None
        most = max((layer.counts[0] for layer in layers.values()), default=0)
        self._all_loads = self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * most)
        self.overflow = self._span(4)
        self.clear_overflow()
        self.memory: dict[int, SlotMemory] = {}
        for number, layer in layers.items():
            words = self.words.of(number)
            device.upload(words, first_state(layer.first, rules.kind, rules.num_experts))
            self.memory[number] = self._memory_of(number, layer, words)
            layer.fill_tables(device, layer.first.residents(rules.kind))

    def _memory_of(self, number: int, layer: SlotLayer, words: Span) -> SlotMemory:
        used = self._rules.experts_per_token
        learned = self._learning.map_of(number) if self._learning is not None else None
        return SlotMemory(
            layer=layer,
            state=layer.state(self._device, words, learned),
            loads=self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * used),
            early_loads=self._span(_LIST_HEADER_BYTES + _LOAD_BYTES * layer.counts[1]),
            outcomes=self._span(4 * used),
        )

    def _span(self, num_bytes: int) -> Span:
        return Span(self._device.allocate(num_bytes), 0, num_bytes)

    def use(
        self,
        layer: int,
        ids: Span,
        miss: KernelMissMode = KernelMissMode.BUS,
        phase: Phase = Phase.DECODE,
        num_before: int = 0,
        num_tokens: int = 1,
    ) -> tuple[Launch, ...]:
        """Returns the launches that look up and load the experts of one token, after its route.

        `ids` (num_before + 1, experts per token) int32 are best first. The last row is this token's
        route; the rows before belong to tokens of the same step that were looked up already. The
        step has `num_tokens` tokens.
        """
        memory, rules = self.memory[layer], self._rules
        decide = slot_policy(
            rules, memory.state, ids, memory.loads, memory.outcomes, self.overflow,
            layer=layer, miss=miss, phase=phase, num_before=num_before, num_tokens=num_tokens,
            routes=None if self._learning is None else self._learning.routes,
        )  # fmt: skip
        wait = copy_wait(memory.state.words, phase)
        return decide, self._gather(memory, memory.loads, rules.experts_per_token, wait)

    def use_batch(
        self,
        layer: int,
        ids: Span,
        tokens: int,
        *,
        is_first: bool = True,
        miss_mode: BatchMissMode = BatchMissMode.STREAMED,
    ) -> tuple[Launch, ...]:
        """Returns the launches that fill free slots after a batch has computed a layer.

        `ids` (tokens, experts per token) int32 are the batch's routes. `is_first` marks the first
        batch of a prompt. `miss_mode` says how the batch read the experts without a slot.
        """
        memory, rules = self.memory[layer], self._rules
        remembered = None if self._learning is None else self._learning.remembered_of(layer)
        sizes = {"tokens": tokens, "used": rules.experts_per_token}
        decide = slot_batch(
            rules, memory.state, ids, self._all_loads, remembered,
            is_first=is_first, miss_mode=miss_mode, **sizes,
        )  # fmt: skip
        return decide, self._gather(memory, self._all_loads, memory.state.num_slots)

    def end_batch(self, tokens: int) -> tuple[Launch, ...]:
        """Returns the launches that update the policy after a batch has computed the last layer."""
        return () if self._learning is None else self._learning.end_batch(tokens)

    def prefetch(
        self, layer: int, predictions: Span, after: int, budget: int, tokens: int = 1
    ) -> tuple[Launch, ...]:
        """Returns the launches that prefetch at most `budget` predicted experts of a layer.

        They prefetch only if the current layer, `after`, loads no experts, so that the bus is idle.
        `predictions` are (tokens, experts per token) int32, best first.
        """
        memory, now = self.memory[layer], self.memory[after].loads
        decide = slot_prefetch(
            self._rules, memory.state, predictions, now, memory.early_loads,
            budget=budget, tokens=tokens,
        )  # fmt: skip
        wait = prefetch_wait(memory.state.words)
        return decide, self._gather(memory, memory.early_loads, memory.state.num_early, wait)

    def resize(self, layer: int, num_slots: int) -> None:
        """Changes the number of slots that a layer uses; to be called between tokens.

        Experts are evicted in the policy's order, pinned ones last. Experts that stay move to the
        first slots. Raises ValueError if the layer has no memory for so many slots.
        """
        memory = self.memory[layer]
        if not 0 <= num_slots <= memory.state.num_slots:
            raise ValueError(f"{num_slots} slots, but memory for {memory.state.num_slots}")
        resized = min(num_slots, self._rules.num_experts)
        self._run(slot_resize(self._rules, memory.state, self._all_loads, resized=resized))
        self._run(self._gather(memory, self._all_loads, memory.state.num_slots))

    def set_memory(self, number: int, layer: SlotLayer, residents: Sequence[int]) -> None:
        """Replaces the memory of a layer's slots; to be called between tokens.

        The caller copies the experts `residents` to slots 0, 1, ... of the new memory.
        """
        memory, device = self.memory[number], self._device
        state = layer.state(device, memory.state.words, memory.state.learned)
        self.memory[number] = replace(memory, layer=layer, state=state)
        layer.fill_tables(device, residents)

    def set_residents(self, number: int, residents: Sequence[int]) -> None:
        """Records on the device that these experts are in slots 0, 1, ... of a layer.

        The caller first copies them there, between tokens. The policy must be a static set, which
        does not move experts.
        """
        memory = self.memory[number]
        memory.layer.fill_tables(self._device, residents)
        words = memory.state.words
        for start, values in resident_words(residents, self._rules.num_experts):
            self._device.upload(words.part(4 * start, values.nbytes), values)

    def pin_most_used(self, count: int) -> None:
        """Pins the `count` most used experts of each layer, between tokens.

        At most half of the slots are pinned. Pinned experts without a slot are loaded.
        """
        for memory in self.memory.values():
            loads = self._all_loads
            self._run(slot_resize(self._rules, memory.state, loads, num_pinned=count))
            self._run(self._gather(memory, loads, memory.state.num_slots))

    def reset_sequence(self) -> None:
        """Resets what the policy remembers of the last tokens, because an unrelated text begins."""
        if self._learning is not None:
            self._learning.forget_routes()

    def clear_overflow(self) -> None:
        """Sets `overflow` to 0; launches of `use` set it to 1 if staging buffers are too few."""
        self._device.upload(self.overflow, np.zeros(1, np.int32))

    def _gather(
        self, memory: SlotMemory, loads: Span, most_loads: int, wait: CopyWait | None = None
    ) -> Launch:
        num_slots, num_early, _ = memory.state.sizes
        return gather_experts(
            loads, memory.layer.pieces, experts=self._rules.num_experts, num_slots=num_slots,
            num_early=num_early, most_loads=most_loads, wait=wait,
        )  # fmt: skip

    def _run(self, launch: Launch) -> None:
        self._device.launch(launch)
