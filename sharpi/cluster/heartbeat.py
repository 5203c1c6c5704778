"""HeartbeatMonitor: notices within seconds that another rank has ended, hangs or cannot be reached.

Each rank increments a number in the group's store every second, and reads the numbers of the other
ranks. torch.distributed itself would wait for half an hour.
"""

import threading
import time
from collections.abc import Callable, Sequence, Set
from datetime import timedelta
from typing import Any

from sharpi.system.process import Closing, start_native

_BEAT_SECONDS = 1.0
SILENCE_SECONDS = 6.0  # seconds without a beat after which a rank counts as lost
_STORE_SECONDS = 3.0
LEAVE_SECONDS = 3.0  # the longest wait for other ranks to leave
_LEAVE_PAUSE = 0.02


class HeartbeatMonitor(Closing):
    """Watches the ranks of a group from background threads; `hosts` has each rank's host name.

    `store` is torch.distributed's key-value store.

    `on_fault` is called at most once, on any thread, with a sentence that describes the fault.
    """

    def __init__(
        self, store: Any, rank: int, hosts: Sequence[str], on_fault: Callable[[str], None]
    ) -> None:
        self._store, self._rank, self._hosts, self._on_fault = store, rank, hosts, on_fault
        self.fault: str | None = None
        self._optional_ranks: frozenset[int] = frozenset()
        self._lost_optional_ranks: set[int] = set()
        self._on_optional_lost: Callable[[int], None] = lambda rank: None
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        store.set_timeout(timedelta(seconds=_STORE_SECONDS))
        self._last_look = time.monotonic()
        self._threads = [
            threading.Thread(target=work, name="heartbeat monitor", daemon=True)
            for work in (self._run, self._guard)
        ]

    def start(self) -> None:
        self._last_look = time.monotonic()
        for thread in self._threads:
            start_native(thread)

    def set_optional_ranks(self, ranks: Set[int], on_lost: Callable[[int], None]) -> None:
        """Makes the loss of any of these ranks no fault, but a call of `on_lost`."""
        self._on_optional_lost = on_lost
        self._optional_ranks = frozenset(ranks)

    def fail(self, fault: str, *, is_shared: bool = True) -> None:
        """Reports a fault, unless one was reported before; with `is_shared` also to other ranks."""
        with self._lock:
            if self.fault is not None or self._has_ended.is_set():
                return
            self.fault = fault
        self._on_fault(fault)
        if is_shared:
            self._set(fault)

    def lost(self, rank: int, why: str) -> None:
        """Reports a lost rank as a fault; `why` completes the sentence after the rank's name."""
        self.fail(f"rank {rank} on {self._hosts[rank]} {why}")

    def close(self) -> None:
        """Ends the monitor, and without a fault, records that this rank left on purpose."""
        if not self._has_ended.is_set():
            self._has_ended.set()
            if self.fault is None:
                self._set("", key=_left(self._rank))

    def wait_for_others(self) -> bool:
        """Waits shortly for other ranks to leave, unless there is a fault; True if they did."""
        ranks = set(range(len(self._hosts))) - {self._rank} - self._lost_optional_ranks
        others = [_left(rank) for rank in ranks]
        end = time.monotonic() + LEAVE_SECONDS
        while self.fault is None and time.monotonic() < end:
            try:
                if self._store.check(others):
                    return True
            except Exception:  # the store itself was lost
                return False
            time.sleep(_LEAVE_PAUSE)
        return False

    def _set(self, fault: str, key: str = "fault") -> None:
        try:
            self._store.set(key, fault)
        except Exception:  # the store itself was lost
            return

    def _run(self) -> None:
        beats = 0
        seen = {rank: ("", time.monotonic()) for rank in range(len(self._hosts))}
        while not self._has_ended.wait(_BEAT_SECONDS) and self.fault is None:
            beats += 1
            try:
                self._store.set(f"beat/{self._rank}", str(beats))
                self._look(seen)
            except Exception:
                if not self._has_ended.is_set():
                    self._store_lost()
            self._last_look = time.monotonic()

    def _guard(self) -> None:
        """Reports rank 0 as lost if a call to the store hangs, as when the network is cut off."""
        while not self._has_ended.wait(_BEAT_SECONDS) and self.fault is None:
            if time.monotonic() - self._last_look > SILENCE_SECONDS:
                self._store_lost()

    def _store_lost(self) -> None:
        self.fail(
            f"rank 0 on {self._hosts[0]} does not answer: it has ended, hangs, or its network is"
            " cut off",
            is_shared=False,
        )

    def _look(self, seen: dict[int, tuple[str, float]]) -> None:
        if self._store.check(["fault"]):
            self.fail(self._store.get("fault").decode(errors="replace"), is_shared=False)
            return
        for rank in range(len(self._hosts)):
            is_known = rank == self._rank or rank in self._lost_optional_ranks
            if not is_known and not self._store.check([_left(rank)]):
                self._look_at(rank, seen)

    def _look_at(self, rank: int, seen: dict[int, tuple[str, float]]) -> None:
        key = f"beat/{rank}"
        beat = self._store.get(key).decode() if self._store.check([key]) else ""
        last, since = seen[rank]
        if beat != last:
            seen[rank] = beat, time.monotonic()
        elif time.monotonic() - since <= SILENCE_SECONDS:
            return
        elif rank in self._optional_ranks:
            self._lost_optional_ranks.add(rank)
            self._on_optional_lost(rank)
        else:
            self.lost(rank, f"does not answer for {SILENCE_SECONDS:.0f} seconds")


def _left(rank: int) -> str:
    """Returns the key that a rank sets when it leaves on purpose."""
    return f"left/{rank}"
