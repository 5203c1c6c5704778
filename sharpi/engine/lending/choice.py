"""Choice: decides during a run if other ranks compute missing experts or the disk is read."""

import threading
from collections.abc import Callable
from typing import Protocol

from sharpi.system.closing import Closing
from sharpi.system.native_threads import start_native

TOKENS_BETWEEN = 256  # decoded tokens between two measurements, at least
HYSTERESIS = 1.25  # the other source of experts must be this many times faster
_LEAVE_SECONDS = 5.0


class ExpertAccess(Protocol):
    """Switches between two sources of missing experts: other ranks that compute, and the disk."""

    def round_trip(self) -> float:
        """Measures the seconds from a request to its reply; raises if a rank is lost."""

    def resume(self) -> None:
        """Makes steps send requests to the other ranks from now on."""

    def pause(self) -> None:
        """Makes steps read experts from the disk from now on."""


def still_asks(asks: bool, round_trip: float, read: float) -> bool:
    """Returns True if steps should send requests to other ranks, rather than read the disk.

    `asks` is the present choice, which changes only if the other source is clearly faster.
    `round_trip` and `read` are the seconds of a request and of a read.
    """
    if asks:
        return round_trip <= HYSTERESIS * read
    return HYSTERESIS * round_trip < read


class Choice(Closing):
    """Compares requests to other ranks with disk reads every `TOKENS_BETWEEN` tokens.

    It measures on its own thread. `read` measures the seconds of a disk read. After a change
    `on_change` is called with True if requests are sent from now on, and with the seconds of a
    request and of a read.
    """

    def __init__(
        self,
        access: ExpertAccess,
        read: Callable[[], float],
        asks: bool,
        on_change: Callable[[bool, float, float], None],
    ) -> None:
        self._access, self._read, self._on_change = access, read, on_change
        self.asks, self._num_tokens = asks, 0
        self._is_due, self._has_ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="choice", daemon=True)
        start_native(self._thread)

    def count(self, num_tokens: int) -> None:
        """Counts the tokens of a step, and begins a measurement if one is due."""
        self._num_tokens += num_tokens
        if self._num_tokens >= TOKENS_BETWEEN:
            self._num_tokens = 0
            self._is_due.set()

    def _run(self) -> None:
        while self._is_due.wait() and not self._has_ended:
            self._is_due.clear()
            try:
                self.decide()
            except Exception:  # a lost rank, which the asker reports, or a missing file
                return

    def decide(self) -> None:
        """Measures a request and a disk read, and switches to the one that is clearly faster."""
        round_trip, read = self._access.round_trip(), self._read()
        asks = still_asks(self.asks, round_trip, read)
        if asks == self.asks or self._has_ended:
            return
        self.asks = asks
        (self._access.resume if asks else self._access.pause)()
        self._on_change(asks, round_trip, read)

    def close(self) -> None:
        """Ends the thread, after any measurement that has begun."""
        self._has_ended = True
        self._is_due.set()
        self._thread.join(_LEAVE_SECONDS)
