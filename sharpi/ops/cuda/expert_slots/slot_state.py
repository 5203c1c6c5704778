"""The state of a layer's slots, an array of int32 words in the device's memory.

`SlotHeader` and `Slots` in kernels/cuda/slots/slot_state.cuh have the same layout. The functions
make the initial state, and read a state that was downloaded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.experts.host_items import CopyWait, Wait
from sharpi.ops.cuda.launchers.experts.slot_policy import Phase

STATIC = 8  # the kind of policy that keeps pinned experts only
_SLRU = 0
_COUNTS = 24  # counts per phase
_COUNT_WORDS, _HEADER_WORDS, _NUM_ARRAYS = 96, 200, 7
_ROUTE_TIME, _SINCE, _PREFETCH_TIME, _COPIED, _COPIED_EARLY = 106, 108, 110, 112, 113
_NUM_SLOTS, _NUM_RESIDENT, _NUM_PROTECTED, _WEIGHT = 97, 98, 99, 100
_SLOT_OF, _LAST_USED, _STAMP, _USES, _FLAGS = range(5)
_PINNED, _PROTECTED = 1, 2

Words = NDArray[np.int32]


class SlotCounts(NamedTuple):
    """The statistics of a layer's slots in one phase; `Count` of slot_state.cuh.

    Most fields count experts. Each access is a hit, an early hit, a load, staged, streamed or
    computed.
    """

    accesses: int = 0
    hits: int = 0
    loads: int = 0  # missed, copied to a slot over the bus
    loads_from_early: int = 0  # early hits that were then copied to a slot
    early_loads: int = 0  # prefetched to early slots
    early_hits: int = 0  # prefetched and then used
    early_wasted: int = 0  # prefetched and not used
    staged: int = 0  # missed, no slot, copied to a buffer
    streamed: int = 0  # missed, no slot, read from the host copy
    computed: int = 0  # missed, no slot, computed by the CPU
    overflows: int = 0  # uses that had too few staging buffers
    predictions: int = 0  # predicted for the next use
    right_predictions: int = 0  # predicted and then used
    fills: int = 0  # copied to slots when nothing needed them
    waited: int = 0  # nanoseconds in which the GPU waited for experts
    late: int = 0  # early hits whose copies were still in flight
    predicted_uses: int = 0  # experts of steps for which some were predicted

    @property
    def over_bus(self) -> int:
        """The number of experts whose bytes crossed the bus."""
        return self.loads + self.early_loads + self.staged + self.streamed + self.fills


class PhaseSlotCounts(NamedTuple):
    """The statistics of a layer's slots in prompts, and in decode steps."""

    prompt: SlotCounts
    decode: SlotCounts

    @property
    def total(self) -> SlotCounts:
        """The counts of both phases together."""
        return total_counts(self)


class SlotStates(NamedTuple):
    """The state of each expert of a layer, (experts,) each."""

    slot_of: Words  # the expert's slot; -1 without a slot
    pinned: NDArray[np.bool_]
    uses: Words  # how often the expert was used


class FirstSlots(Struct, frozen=True):
    """The experts that are in a layer's slots at the start: pinned ones, then warm ones."""

    num_slots: int
    pinned: tuple[int, ...] = ()  # at most half of the slots are pinned, or all for a static set
    warm: tuple[int, ...] = ()  # fill the slots that are left

    def pins(self, kind: int) -> list[int]:
        """Returns the ids of pinned experts: at most half of the slots, or all for a static set.

        `kind` is the number of the policy in slot_rules.cuh.
        """
        most = self.num_slots if kind == STATIC else self.num_slots // 2
        return list(dict.fromkeys(self.pinned))[:most]

    def residents(self, kind: int) -> list[int]:
        """Returns the ids of the experts in slots 0, 1, ... at the start."""
        pins = self.pins(kind)
        return list(dict.fromkeys([*sorted(pins), *self.warm]))[: self.num_slots]


def state_bytes(num_experts: int) -> int:
    """Returns the bytes of the state of one layer's slots."""
    return 4 * (_HEADER_WORDS + _NUM_ARRAYS * num_experts)


def first_state(first: FirstSlots, kind: int, num_experts: int) -> Words:
    """Returns the initial state of a layer's slots; `kind` is the policy's number."""
    words = np.zeros(state_bytes(num_experts) // 4, np.int32)
    residents, pins = first.residents(kind), first.pins(kind)
    counts = words[:_COUNT_WORDS].view(np.int64)
    counts[SlotCounts._fields.index("fills")] = len(residents)
    words[_NUM_SLOTS] = min(first.num_slots, num_experts)
    words[_NUM_RESIDENT] = len(residents)
    words[_WEIGHT : _WEIGHT + 1].view(np.float32)[:] = 1
    arrays = _arrays(words)
    arrays[[_SLOT_OF, _LAST_USED, _STAMP]] = -1
    arrays[_SLOT_OF, residents] = np.arange(len(residents))
    arrays[_FLAGS, pins] = _PINNED
    if kind == _SLRU:
        arrays[_FLAGS, pins] |= _PROTECTED
        words[_NUM_PROTECTED] = len(pins)
    return words


def resident_words(residents: Sequence[int], num_experts: int) -> tuple[tuple[int, Words], ...]:
    """Returns the words to write to a layer's state so that `residents` are in slots 0, 1, ...

    Each entry is an index into the state, and the words to write from that index on. The experts
    become pinned, as the policy of a static set requires.
    """
    slot_of, flags = np.full(num_experts, -1, np.int32), np.zeros(num_experts, np.int32)
    slot_of[list(residents)] = np.arange(len(residents))
    flags[list(residents)] = _PINNED
    first = {name: _HEADER_WORDS + name * num_experts for name in (_SLOT_OF, _FLAGS)}
    count = np.array([len(residents)], np.int32)
    return (_NUM_RESIDENT, count), (first[_SLOT_OF], slot_of), (first[_FLAGS], flags)


def route_time(state: Span) -> Span:
    """Returns the int64 of a layer's state for the time at which the layer's route was known.

    Times are in nanoseconds of the GPU's clock.
    """
    return _int64(state, _ROUTE_TIME)


def wait_of(state: Span, phase: Phase) -> Wait:
    """Returns the words of a layer's state that add up the waits for experts in one phase."""
    index = 2 * (_COUNTS * phase + SlotCounts._fields.index("waited"))
    return Wait(_int64(state, _SINCE), _int64(state, index))


def copy_wait(state: Span, phase: Phase) -> CopyWait:
    """Returns the words of a layer's state that add up the time of copies to slots."""
    return CopyWait(state.part(4 * _COPIED, 4), *wait_of(state, phase))


def prefetch_wait(state: Span) -> CopyWait:
    """Returns the words of a layer's state for the time at which a prefetch ended."""
    return CopyWait(state.part(4 * _COPIED_EARLY, 4), None, _int64(state, _PREFETCH_TIME))


def _int64(state: Span, word: int) -> Span:
    return state.part(4 * word, 8)


def _arrays(words: Words) -> Words:
    return words[_HEADER_WORDS:].reshape(_NUM_ARRAYS, -1)


def counts_of(words: Words) -> PhaseSlotCounts:
    """Reads the statistics from a layer's state."""
    phases = words[:_COUNT_WORDS].view(np.int64).reshape(2, -1)[:, : len(SlotCounts._fields)]
    return PhaseSlotCounts(*(SlotCounts(*counts) for counts in phases.tolist()))


def total_counts(layers: Sequence[SlotCounts]) -> SlotCounts:
    """Returns the sum of the statistics of several layers, field by field."""
    return SlotCounts(*(sum(column) for column in zip(*layers, strict=True)))


def states_of(words: Words) -> SlotStates:
    """Reads the slots, pins and uses of all experts from a layer's state, as copies."""
    arrays = _arrays(words)
    pinned = (arrays[_FLAGS] & _PINNED) != 0
    return SlotStates(arrays[_SLOT_OF].copy(), pinned, arrays[_USES].copy())


def statistics_of(words: Words) -> tuple[Words, Words]:
    """Returns views of a layer's state: of the counts, and of the uses of each expert."""
    return words[:_COUNT_WORDS], _arrays(words)[_USES]
