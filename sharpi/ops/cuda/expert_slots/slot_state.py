"""A layer's slots as words of the device's memory: what is there at first, and what is read back.

The layout is `SlotHeader` and `Slots` of kernels/cuda/slots/slot_state.cuh.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

STATIC = 8  # the kind whose pinned experts are the whole set
_SLRU = 0
_COUNT_WORDS, _HEADER_WORDS, _NUM_ARRAYS = 32, 144, 6
_NUM_SLOTS, _NUM_RESIDENT, _NUM_PROTECTED, _WEIGHT = 33, 34, 35, 36
_SLOT_OF, _LAST_USED, _STAMP, _USES, _FLAGS = range(5)
_PINNED, _PROTECTED = 1, 2

Words = NDArray[np.int32]


class SlotCounts(NamedTuple):
    """A layer's look-ups and what was moved for them, in experts; `Count` of slot_state.cuh.

    loads: into slots, of which `loads_from_early` came from early slots and not over the bus.
    early_loads, early_hits, early_wasted: experts fetched before their use, used in it, or not.
    staged, streamed, computed: missed ones without a slot. overflows: uses with too little staging.
    predictions, right_predictions: experts named for a next use, and those of them that it used.
    """

    accesses: int = 0
    hits: int = 0
    loads: int = 0
    loads_from_early: int = 0
    early_loads: int = 0
    early_hits: int = 0
    early_wasted: int = 0
    staged: int = 0
    streamed: int = 0
    computed: int = 0
    overflows: int = 0
    predictions: int = 0
    right_predictions: int = 0

    @property
    def over_bus(self) -> int:
        """Experts whose bytes crossed the bus."""
        moved = self.loads - self.loads_from_early + self.early_loads
        return moved + self.staged + self.streamed


class SlotStates(NamedTuple):
    """By expert: the slot or -1, whether pinned, how often used."""

    slot_of: Words
    pinned: NDArray[np.bool_]
    uses: Words


class FirstSlots(Struct, frozen=True):
    """What a layer's slots begin with.

    Of the `pinned` ids as many are pinned as may be: half of the slots, or all for a static set.
    They are resident from the start, then `warm` ones as far as there is room.
    """

    num_slots: int
    pinned: tuple[int, ...] = ()
    warm: tuple[int, ...] = ()

    def pins(self, kind: int) -> list[int]:
        """The ids that are pinned."""
        room = self.num_slots if kind == STATIC else self.num_slots // 2
        return list(dict.fromkeys(self.pinned))[:room]

    def residents(self, kind: int) -> list[int]:
        """The ids that have slots 0, 1, ... from the start."""
        pins = self.pins(kind)
        warm: Iterable[int] = () if kind == STATIC else self.warm
        return list(dict.fromkeys([*sorted(pins), *warm]))[: self.num_slots]


def state_bytes(num_experts: int) -> int:
    """Size of a layer's state."""
    return 4 * (_HEADER_WORDS + _NUM_ARRAYS * num_experts)


def first_state(first: FirstSlots, kind: int, num_experts: int) -> Words:
    """A layer's state before its first use."""
    words = np.zeros(state_bytes(num_experts) // 4, np.int32)
    residents, pins = first.residents(kind), first.pins(kind)
    counts = words[:_COUNT_WORDS].view(np.int64)
    counts[SlotCounts._fields.index("loads")] = len(residents)
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


def _arrays(words: Words) -> Words:
    return words[_HEADER_WORDS:].reshape(_NUM_ARRAYS, -1)


def counts_of(words: Words) -> SlotCounts:
    """What a layer's state has counted."""
    counts = words[:_COUNT_WORDS].view(np.int64)
    return SlotCounts(*counts[: len(SlotCounts._fields)].tolist())


def total_counts(layers: Sequence[SlotCounts]) -> SlotCounts:
    """The sum over layers."""
    return SlotCounts(*(sum(column) for column in zip(*layers, strict=True)))


def states_of(words: Words) -> SlotStates:
    """Who is where in a layer's state: copies."""
    arrays = _arrays(words)
    pinned = (arrays[_FLAGS] & _PINNED) != 0
    return SlotStates(arrays[_SLOT_OF].copy(), pinned, arrays[_USES].copy())


def num_slots_of(words: Words) -> int:
    """How many slots the layer has now."""
    return int(words[_NUM_SLOTS])
