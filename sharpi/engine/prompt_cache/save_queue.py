"""SaveQueue: pages and states that are to be written to disk, copied before they change.

The engine's thread adds records, and the writer's thread takes them. If a page or state is about to
change while its record still waits, it is copied first, up to a limit of bytes. Beyond that limit
the record is dropped.
"""

import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.kv.pages import State
from sharpi.engine.prompt_cache.record import Bytes, Record
from sharpi.ops.cpu.recorder_tape import aligned_bytes

MAX_COPIED_BYTES = 256 << 20


class Pending(Struct, eq=False):
    """A record to be written: a page, and a state unless `state` is None."""

    record: Record
    page: int
    state: State | None
    time_ns: int  # of its last use
    data: Bytes | None = None  # a copy of both


class SaveQueue:
    """The records to write, in order; those for which `is_stored` is True are on disk already."""

    def __init__(self, memory: ModelMemory, is_stored: Callable[[Record], bool]) -> None:
        self._memory, self._is_stored = memory, is_stored
        self._changed = threading.Condition()
        self._pending: deque[Pending] = deque()
        self._num_copied = 0  # bytes of copies
        self._is_closed = False

    def add(self, pending: list[Pending]) -> None:
        """Adds records, and copies pages that are not in host memory; for the engine's thread."""
        with self._changed:
            self._pending += pending
            self._changed.notify()
        self.copy_some()

    def copy_some(self) -> None:
        """Copies waiting records from a GPU, up to the limit; for the engine's thread."""
        if self._memory.is_host_memory:
            return
        with self._changed:
            for each in self._pending:
                if not self._copy_within_limit(each):
                    break
            self._changed.notify()

    def copy_or_drop_page(self, page: int) -> None:
        """Copies or drops the waiting records of a page that is about to change."""
        self._copy_or_drop(lambda each: each.page == page)

    def copy_or_drop_windows(self, page: int) -> None:
        """Copies or drops a page's waiting records, but partial ones, before its windows go."""
        self._copy_or_drop(lambda each: each.page == page and not each.record.is_partial)

    def copy_or_drop_state(self, state: State) -> None:
        """Copies or drops the waiting records of a state that is about to change."""
        self._copy_or_drop(lambda each: each.state == state)

    def _copy_or_drop(self, concerns: Callable[[Pending], bool]) -> None:
        if not self._pending:
            return
        with self._changed:
            self._pending = deque(
                each
                for each in self._pending
                if not concerns(each) or self._copy_within_limit(each)
            )
            self._changed.notify()

    def _copy_within_limit(self, pending: Pending) -> bool:
        """Copies a record's data unless it is on disk; returns False if the limit is reached."""
        if pending.data is not None or self._is_stored(pending.record):
            return True
        if self._num_copied + pending.record.num_bytes > MAX_COPIED_BYTES and self._num_copied:
            return False
        self._num_copied += pending.record.num_bytes
        pending.data = self._copied(pending)
        return True

    def _copied(self, pending: Pending) -> Bytes:
        record = pending.record
        data = aligned_bytes(record.num_bytes)
        own = data[: record.page_bytes]
        self._memory.read_page(pending.page, own, is_partial=record.is_partial)
        if pending.state is not None:
            self._memory.read_state(pending.state, data[record.page_bytes :])
        return data

    def take(self) -> Pending | None:
        """Waits for the next record, with data to write; None once closed and empty."""
        with self._changed:
            while not self._has_next():
                if self._is_closed and not self._pending:
                    return None
                self._changed.wait()
            pending = self._pending.popleft()
            if pending.data is not None:
                self._num_copied -= pending.record.num_bytes
            elif not self._is_stored(pending.record):
                pending.data = self._copied(pending)
            return pending

    def _has_next(self) -> bool:
        if not self._pending:
            return False
        first = self._pending[0]
        is_ready = self._memory.is_host_memory or first.data is not None
        return is_ready or self._is_stored(first.record)

    def clear(self) -> None:
        with self._changed:
            self._pending.clear()
            self._num_copied = 0
            self._changed.notify()

    def close(self) -> None:
        """Makes `take` return None after the last record."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
