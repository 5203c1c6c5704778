"""Launches the kernels of the slot policy, which decide which of a layer's experts have slots."""

from enum import IntEnum

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Kernel, Launch, Span, argument_indices, flat
from sharpi.ops.cuda.launchers.experts.slot_arguments import (
    DECISION_WRITES,
    DecisionArguments,
    SlotPolicyArguments,
    TableArguments,
)
from sharpi.ops.slot_rules import real, whole

LEARNED_KEEP = whole("LearnedKeep")  # the only policy that has maps
MAX_USED, MAX_EXPERTS = 32, 512
BATCH_MEMORY = whole("BatchMemory")  # the last tokens of a batch, from which a policy learns
_BLOCK, _WARP = 256, 32
RANKS, _NUM_SOURCES = whole("Ranks"), whole("NearLayers") + whole("LastLayers")
INPUT_WORDS = 32  # kInputWords of kernels/cuda/slots/slot_learned.cuh


class KernelMissMode(IntEnum):
    """The handling of a missed expert that gets no slot; `Miss` of slot_decision.cuh.

    BUS copies it to a staging buffer. COMPUTE sets its address to 0, because the CPU computes it.
    """

    BUS = 0
    COMPUTE = 1


class Outcome(IntEnum):
    """The source from which one of a token's experts is read; `Outcome` of slot_lookup.cuh."""

    HIT = 0
    LOADED = 1
    EARLY = 2
    STAGED = 3
    STREAMED = 4
    COMPUTED = 5


class Phase(IntEnum):
    """The phase of a step; `Phase` of slot_state.cuh."""

    PROMPT = 0
    DECODE = 1


class BatchMissMode(IntEnum):
    """How a batch reads missed experts; the numbers are those of `Count` in slot_state.cuh."""

    STAGED = 7  # copied to a buffer
    STREAMED = 8  # read in place
    COMPUTED = 9  # left to the CPU


class PolicyRules(Struct, frozen=True):
    """The policy that decides which experts have slots in all layers, and the model's sizes."""

    kind: int  # the policy's number in slot_rules.cuh
    num_layers: int
    num_experts: int
    experts_per_token: int
    admission: bool = False

    @property
    def num_ranks(self) -> int:
        """The number of a route's best experts from which a map of learned-keep learns."""
        return min(self.experts_per_token, RANKS)

    @property
    def rate(self) -> np.float32:
        """The learning rate of the maps of learned-keep."""
        energy = sum(1.0 / (rank * rank) for rank in range(1, self.num_ranks + 1))
        return np.float32(real("Rate") / (_NUM_SOURCES * energy))

    @property
    def map_floats(self) -> int:
        """The floats in a layer's map of learned-keep: bias, scores, inputs and weights."""
        return self.num_experts * (2 + _NUM_SOURCES * self.num_experts) + INPUT_WORDS

    @property
    def is_learned(self) -> bool:
        """True if the policy is learned-keep, in which layers have maps."""
        return self.kind == LEARNED_KEEP


class LayerState(Struct, frozen=True):
    """One layer's slots on the device, and the address tables that its kernels maintain."""

    words: Span  # laid out as in slot_state.cuh
    # Up to three pairs of address tables (experts,) and lists of addresses, both uint64. A list has
    # the addresses of all host copies, slots, early slots and staging buffers, in this order.
    tables: tuple[tuple[Span, Span], ...]
    num_slots: int
    num_early: int
    num_staging: int
    learned: Span | None = None  # the layer's part of `Learning.maps`

    def table_arguments(self) -> TableArguments:
        """Returns `tables` as six kernel arguments; missing tables are None."""
        return TableArguments(*(span for table in self.tables for span in table))

    def sizes(self) -> tuple[np.int32, np.int32, np.int32]:
        """Returns the numbers of slots, early slots and staging buffers."""
        return np.int32(self.num_slots), np.int32(self.num_early), np.int32(self.num_staging)


class Learning(Struct, frozen=True):
    """The state of the policy learned-keep."""

    maps: Span  # one linear map for each layer, from recent routes to expert scores
    routes: Span  # int32 (layers, 4), the best experts of each layer's newest route
    remembered: Span  # int32 (layers, 64, experts per token), the last routes of a batch
    has_experts: Span  # int32 (layers,), 1 for layers with experts


def slot_policy(
    rules: PolicyRules,
    state: LayerState,
    ids: Span,
    loads: Span,
    outcomes: Span,
    overflow: Span,
    *,
    layer: int,
    miss: KernelMissMode,
    routes: Span | None = None,
    phase: Phase = Phase.DECODE,
    num_before: int = 0,
    num_tokens: int = 1,
) -> Launch:
    """Looks up the experts of one token, assigns slots to them, and lists the copies to make.

    The last row of `ids` (num_before + 1, experts per token) has the token's distinct experts, best
    first. The rows before it belong to tokens of the same step that were looked up already. The
    step has `num_tokens` tokens. The kernel writes `loads`, int32 (4 + 4 * experts per token,), and
    `outcomes` (experts per token,), int32 `Outcome`. It sets `overflow`, an int32, to 1 if there
    are too few staging buffers. `routes` are those of `Learning`.
    """
    decision = DecisionArguments(
        *(state.words, loads, outcomes, overflow, state.table_arguments()),
        *(state.learned, routes, *state.sizes()),
        *(np.int32(rules.kind), np.int32(rules.admission), np.int32(miss), np.int32(phase)),
        *(np.int32(layer), np.int32(rules.num_layers), np.int32(rules.num_ranks), rules.rate),
    )
    experts, used = np.int32(rules.num_experts), np.int32(rules.experts_per_token)
    return Launch(
        Kernel("slot_policy", "slot_policy"),
        grid=(1, 1, 1),
        block=_BLOCK,
        arguments=flat(
            SlotPolicyArguments(
                *(ids, experts, used, np.int32(num_before), np.int32(num_tokens), decision)
            )
        ),
        writes=argument_indices(
            SlotPolicyArguments, *(f"decision.{name}" for name in DECISION_WRITES)
        ),
    )


def slot_batch(
    rules: PolicyRules,
    state: LayerState,
    ids: Span,
    loads: Span,
    remembered: Span | None,
    *,
    tokens: int,
    used: int,
    is_first: bool = True,
    miss_mode: BatchMissMode = BatchMissMode.STREAMED,
) -> Launch:
    """Assigns free slots to the experts of a batch's routes `ids` (tokens, used); evicts none.

    The kernel lists the copies to make in `loads`, which has room for all slots. `remembered` is
    the layer's part of `Learning.remembered`. `is_first` marks the first batch of a prompt.
    `miss_mode` says how the batch read missed experts.
    """
    return Launch(
        Kernel("slot_batch", "slot_batch"),
        grid=(1, 1, 1),
        block=_BLOCK,
        arguments=(
            *(state.words, ids, loads, remembered, *state.table_arguments()),
            *(np.int32(rules.num_experts), np.int32(tokens), np.int32(used), *state.sizes()),
            *(np.int32(rules.kind), np.int32(is_first), np.int32(miss_mode)),
        ),
        writes=frozenset({0, 2, 3, 4, 6, 8}),
    )


def slot_resize(
    rules: PolicyRules, state: LayerState, loads: Span, *, resized: int = -1, num_pinned: int = 0
) -> Launch:
    """Pins experts, and changes the number of a layer's slots to `resized`, unless that is -1.

    The `num_pinned` most used experts are pinned, but at most half of the slots. `loads` has room
    for all slots.
    """
    return Launch(
        Kernel("slot_resize", "slot_resize"),
        grid=(1, 1, 1),
        block=_WARP,
        arguments=(
            *(state.words, loads, _scores(rules, state), *state.table_arguments()),
            *(np.int32(rules.num_experts), *state.sizes(), np.int32(rules.kind)),
            *(np.int32(rules.admission), np.int32(resized), np.int32(num_pinned)),
        ),
        writes=frozenset({0, 1, 3, 5, 7}),
    )


def _scores(rules: PolicyRules, state: LayerState) -> Span | None:
    row = 4 * rules.num_experts
    return None if state.learned is None else state.learned.part(row, row)


def slot_prefetch(
    rules: PolicyRules,
    state: LayerState,
    predictions: Span,
    now: Span,
    loads: Span,
    *,
    budget: int,
    tokens: int = 1,
) -> Launch:
    """Lists in `loads` at most `budget` predicted experts to copy to a layer's early slots.

    The list is empty unless the bus is idle, which `now`, the list of the current layer's loads,
    tells. `predictions` (tokens, experts per token) are best first.
    """
    return Launch(
        Kernel("slot_prefetch", "slot_prefetch"),
        grid=(1, 1, 1),
        block=_WARP,
        arguments=(
            *(state.words, predictions, now, loads, np.int32(rules.num_experts)),
            *(np.int32(tokens), np.int32(rules.experts_per_token), *state.sizes()[:2]),
            np.int32(min(budget, state.num_early)),
        ),
        writes=frozenset({0, 3}),
    )


def slot_learn_batch(rules: PolicyRules, learning: Learning, *, tokens: int) -> tuple[Launch, ...]:
    """Updates the maps of learned-keep from the last tokens of a batch, after the last layer.

    `tokens` is the number of tokens in the batch.
    """
    tokens, used = min(tokens, BATCH_MEMORY), np.int32(rules.experts_per_token)
    ranks, grid = np.int32(rules.num_ranks), (rules.num_layers, 1, 1)
    remembered = (learning.remembered, learning.has_experts, learning.routes)
    learn = Launch(
        Kernel("slot_learn_batch", "slot_learn_batch"),
        grid=grid,
        block=_BLOCK,
        arguments=(
            *(learning.maps, *remembered, np.int64(rules.map_floats), np.int32(rules.num_experts)),
            *(np.int32(tokens), used, ranks, rules.rate),
        ),
        writes=frozenset({0}),
    )
    end = Launch(
        Kernel("slot_learn_batch", "slot_end_batch"),
        grid=grid,
        block=_WARP,
        arguments=(*remembered, np.int32(tokens), used, ranks),
        writes=frozenset({2}),
    )
    return learn, end
