"""MemoryWatch: gives memory of expert slots to other programs that need it, and takes it back.

The kernel ends the largest process once memory runs out, which is sharpi. So a thread looks at how
much is free, the more often the less there is. Slots shrink before it runs out, also during a step,
and grow again once memory has been free for a while.
"""

import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import Protocol

from sharpi.engine.backends.model_part import Segment, StepRoutes
from sharpi.hardware.memory import MemoryGauge, MemoryInfo
from sharpi.system.process import Closing, print_running_note
from sharpi.tiers.planner import least_free
from sharpi.units import format_bytes

_TAKEN_PER_SECOND = 4e9  # bytes that other programs may take, which says when to look again
_PAUSES = (0.02, 0.5)  # the least and the most seconds between two looks
_AHEAD = 0.25  # seconds for which others are expected to take as much as since the last look
_STALLED = 0.02  # the share of the time spent waiting for memory at which it counts as short
_GROW_AFTER = 1.0  # seconds for which memory has to be free before slots grow
_LEAST_PART = 64  # of the slots' bytes by which they grow at least
_GROWTH = 32 << 20  # the most bytes by which slots grow between two looks: it takes time


class Slots(Protocol):
    """The slots that shrink and grow."""

    @property
    def slot_bytes(self) -> int:
        """The bytes of all slots now."""

    @property
    def most_slot_bytes(self) -> int:
        """The bytes of all slots that were planned."""

    @property
    def largest_slot(self) -> int:
        """The bytes of the largest slot."""

    def resize(self, num_bytes: int) -> None:
        """Makes the slots take at most this many bytes."""


class Gauge(Protocol):
    """What the kernel says about memory."""

    def read(self) -> MemoryInfo:
        """Returns the present figures."""

    def stalled(self) -> float:
        """Returns the seconds in which processes waited for memory, since ever."""


class SlotBudget:
    """Decides how many bytes slots may take, from how much memory is free at each look.

    Less than `least` free bytes is too little. `wanted` are to be free after slots have shrunk.
    They grow by one of `slot` bytes at least.
    """

    def __init__(self, least: int, slot: int = 0) -> None:
        self.least, self.wanted, self._slot = least, 2 * least, slot
        # At the last look: free bytes and those of slots, seconds of waiting, and the time.
        self._room, self._stalled, self._at = 0, 0.0, 0.0
        self._expected = 0  # bytes that will be free soon, as it looked then
        self._short_at = 0.0  # when memory was last short

    def next(self, now: float, free: int, stalled: float, has: int, most: int) -> int:
        """Returns the bytes that slots may take from now on; they take `has`, at most `most`.

        `free` bytes are free; processes waited `stalled` seconds for memory so far. `now` is in
        seconds.
        """
        passed = max(now - self._at, 1e-3)
        is_first = not self._at
        taken = 0 if is_first else max(0, self._room - free - has) / passed
        waits = not is_first and stalled - self._stalled > _STALLED * passed
        self._room, self._stalled, self._at = free + has, stalled, now
        self._expected = free - int(taken * _AHEAD)
        if self._expected < (self.wanted if waits else self.least):
            self._short_at = now
            return max(0, has - (self.wanted - self._expected))
        spare = self._expected - self.wanted - self.least
        if spare <= 0:
            self._short_at = now
        growth = min(spare, most - has, max(_GROWTH, self._slot))
        enough = max(self._slot, min(most // _LEAST_PART, _GROWTH))
        is_worth_it = growth > 0 and growth >= min(most - has, enough)
        return has + growth if is_worth_it and now - self._short_at >= _GROW_AFTER else has

    def pause(self) -> float:
        """Returns the seconds until the next look: less than it takes others to use up the rest."""
        least, most = _PAUSES
        return min(most, max(least, (self._expected - self.least) / _TAKEN_PER_SECOND))


class MemoryWatch(Closing):
    """Watches memory while a model runs with slots in RAM, and resizes them; `close` ends that.

    If `is_concurrent`, slots change at once, also during a step; otherwise after the next one.
    """

    reads_routes = False

    def __init__(self, slots: Slots, gauge: Gauge | None = None, *, is_concurrent: bool) -> None:
        self._slots, self._gauge = slots, gauge or MemoryGauge()
        info = self._gauge.read()
        self._budget = SlotBudget(least_free(info.limit or info.total), slots.largest_slot)
        self._is_concurrent, self._is_told = is_concurrent, False
        self._wanted: int | None = None  # bytes for slots, after the next step
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="memory-watch", daemon=True)
        self._thread.start()

    def step(self, segments: Sequence[Segment], program: StepRoutes) -> None:
        """Resizes the slots after a step, if they cannot change during one."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._resize(wanted)

    def _watch(self) -> None:
        while not self._ended.wait(self._budget.pause()):
            self._look()

    def _look(self) -> None:
        has, most = self._slots.slot_bytes, self._slots.most_slot_bytes
        free, stalled = self._gauge.read().free, self._gauge.stalled()
        wanted = self._budget.next(time.monotonic(), free, stalled, has, most)
        if not self._is_concurrent:
            self._wanted = None if wanted == has else wanted
        elif wanted != has:
            self._resize(wanted)

    def _resize(self, num_bytes: int) -> None:
        has = self._slots.slot_bytes
        self._slots.resize(num_bytes)
        if num_bytes < has and not self._is_told:
            self._is_told = True
            print_running_note(
                "other programs need memory: expert slots gave back"
                f" {format_bytes(has - num_bytes)}, and grow again once memory is free"
            )

    def close(self) -> None:
        """Ends the watch; a second call does nothing."""
        self._ended.set()
        self._thread.join()
