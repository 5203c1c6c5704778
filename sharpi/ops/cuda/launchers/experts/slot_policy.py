"""Launches the kernels of the slot policy, which decide which of a layer's experts have slots."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Kernel, Launch, Span
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
    def rate(self) -> float:
        """The learning rate of the maps of learned-keep."""
        energy = sum(1.0 / (rank * rank) for rank in range(1, self.num_ranks + 1))
        return real("Rate") / (_NUM_SOURCES * energy)

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

    @property
    def table_arguments(self) -> "TableArguments":
        """The tables as six kernel arguments; missing tables are None."""
        return TableArguments(*(span for table in self.tables for span in table))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of slots, early slots and staging buffers."""
        return self.num_slots, self.num_early, self.num_staging


class Learning(Struct, frozen=True):
    """The state of the policy learned-keep."""

    maps: Span  # one linear map for each layer, from recent routes to expert scores
    routes: Span  # int32 (layers, 4), the best experts of each layer's newest route
    remembered: Span  # int32 (layers, 64, experts per token), the last routes of a batch
    has_experts: Span  # int32 (layers,), 1 for layers with experts


class TableArguments(NamedTuple):
    """Address tables (experts,), each followed by all addresses that it may hold."""

    first: Span | None = None
    first_addresses: Span | None = None
    second: Span | None = None
    second_addresses: Span | None = None
    third: Span | None = None
    third_addresses: Span | None = None

    @property
    def written(self) -> tuple[Span | None, ...]:
        """The tables themselves."""
        return self[::2]


class DecisionArguments(NamedTuple):
    """A layer's slots, and how to decide about them (SLOT_DECISION of slot_decision.cuh)."""

    state: Span
    loads: Span
    outcomes: Span
    overflow: Span
    tables: TableArguments
    learned: Span | None
    routes: Span | None
    num_slots: int
    num_early: int
    num_staging: int
    kind: int
    has_admission: int
    miss: int
    phase: int
    layer: int
    num_layers: int
    num_ranks: int
    rate: float

    @property
    def written(self) -> tuple[Span | None, ...]:
        """The memory that a decision writes."""
        of_policy = (self.learned, self.routes)
        return (*self[:4], *self.tables.written, *of_policy)


class SlotPolicyArguments(NamedTuple):
    """The arguments of the kernel `slot_policy`: a token's experts, and the decision about them."""

    ids: Span
    experts: int
    used: int
    num_before: int
    num_tokens: int
    decision: DecisionArguments


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
        *(state.words, loads, outcomes, overflow, state.table_arguments, state.learned, routes),
        *(*state.sizes, rules.kind, rules.admission, miss, phase),
        *(layer, rules.num_layers, rules.num_ranks, rules.rate),
    )
    sizes = (rules.num_experts, rules.experts_per_token, num_before, num_tokens)
    arguments = SlotPolicyArguments(ids, *sizes, decision)
    return Launch.of("slot_policy", (1,), _BLOCK, arguments, decision.written)


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
    tables = state.table_arguments
    return Launch.of(
        "slot_batch",
        (1,),
        _BLOCK,
        (
            *(state.words, ids, loads, remembered, tables, rules.num_experts, tokens, used),
            *(*state.sizes, rules.kind, is_first, miss_mode),
        ),
        [state.words, loads, remembered, *tables.written],
    )


def slot_resize(
    rules: PolicyRules, state: LayerState, loads: Span, *, resized: int = -1, num_pinned: int = 0
) -> Launch:
    """Pins experts, and changes the number of a layer's slots to `resized`, unless that is -1.

    The `num_pinned` most used experts are pinned, but at most half of the slots. `loads` has room
    for all slots.
    """
    row, tables = 4 * rules.num_experts, state.table_arguments
    scores = None if state.learned is None else state.learned.part(row, row)
    return Launch.of(
        "slot_resize",
        (1,),
        _WARP,
        (
            *(state.words, loads, scores, tables, rules.num_experts, *state.sizes),
            *(rules.kind, rules.admission, resized, num_pinned),
        ),
        [state.words, loads, *tables.written],
    )


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
    sizes = (rules.num_experts, tokens, rules.experts_per_token, *state.sizes[:2])
    arguments = (state.words, predictions, now, loads, *sizes, min(budget, state.num_early))
    return Launch.of("slot_prefetch", (1,), _WARP, arguments, [state.words, loads])


def slot_learn_batch(rules: PolicyRules, learning: Learning, *, tokens: int) -> tuple[Launch, ...]:
    """Updates the maps of learned-keep from the last tokens of a batch, after the last layer.

    `tokens` is the number of tokens in the batch.
    """
    of_batch = (min(tokens, BATCH_MEMORY), rules.experts_per_token, rules.num_ranks)
    remembered = (learning.remembered, learning.has_experts, learning.routes)
    size = np.int64(rules.map_floats)
    of_maps = (learning.maps, *remembered, size, rules.num_experts, *of_batch, rules.rate)
    kernels = (Kernel("slot_learn_batch", name) for name in ("slot_learn_batch", "slot_end_batch"))
    learn, end = kernels
    grid = (rules.num_layers,)
    return (
        Launch.of(learn, grid, _BLOCK, of_maps, [learning.maps]),
        Launch.of(end, grid, _WARP, (*remembered, *of_batch), [learning.routes]),
    )
