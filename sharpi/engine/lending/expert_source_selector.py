"""ExpertSourceSelector: decides whether other ranks compute missing experts or the disk is read."""

import threading
from collections.abc import Callable
from typing import Protocol

from sharpi.system.process import Closing, start_native

TOKENS_BETWEEN = 256  # decoded tokens between two measurements, at least
HYSTERESIS = 1.25  # the other source of experts must be this many times faster
_LEAVE_SECONDS = 5.0


class ExpertAccess(Protocol):
    """Switches between two sources of missing experts: other ranks that compute, and the disk."""

    def round_trip(self) -> float:
        """Measures the seconds from a request to its reply; raises if a rank is lost."""

    def resume(self) -> None:
        """Makes steps send is_remote to the other ranks from now on."""

    def pause(self) -> None:
        """Makes steps read experts from the disk from now on."""


def prefers_remote(is_remote: bool, round_trip: float, read: float) -> bool:
    """Returns True if steps should send requests to other ranks, rather than read the disk.

    `is_remote` says that they do now, which changes only if the other source is clearly faster.
    `round_trip` and `read` are the seconds of a request and of a read.
    """
    if is_remote:
        return round_trip <= HYSTERESIS * read
    return HYSTERESIS * round_trip < read


class ExpertSourceSelector(Closing):
    """Compares requests to other ranks with disk reads every `TOKENS_BETWEEN` tokens.

    It measures on its own thread. `read` measures the seconds of a disk read. After a change
    `on_change` is called with True if requests are sent from now on, and with the seconds of a
    request and of a read.
    """

    def __init__(
        self,
        access: ExpertAccess,
        read: Callable[[], float],
        is_remote: bool,
        on_change: Callable[[bool, float, float], None],
    ) -> None:
        self._access, self._read, self._on_change = access, read, on_change
        self.is_remote, self._num_tokens = is_remote, 0
        self._is_due, self._has_ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="expert source", daemon=True)
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
            except Exception:  # a lost rank, which the client reports, or a missing file
                return

    def decide(self) -> None:
        """Measures a request and a disk read, and switches to the one that is clearly faster."""
        round_trip, read = self._access.round_trip(), self._read()
        is_remote = prefers_remote(self.is_remote, round_trip, read)
        if is_remote == self.is_remote or self._has_ended:
            return
        self.is_remote = is_remote
        (self._access.resume if is_remote else self._access.pause)()
        self._on_change(is_remote, round_trip, read)

    def close(self) -> None:
        """Ends the thread, after any measurement that has begun."""
        self._has_ended = True
        self._is_due.set()
        self._thread.join(_LEAVE_SECONDS)
