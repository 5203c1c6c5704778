"""ExpertClient: the threads that request outputs of experts from the ranks that lend them.

If a rank is lost, this machine itself computes the replies that the rank still owes, from the
mapped file, and later steps send it no requests. The values are the same; only reading from disk is
slower.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from sharpi.cluster.group import Bytes, RequestChannel
from sharpi.engine.lending.lender import MAX_TOKENS, WARM_UP, ExpertPrograms, Loan
from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.native.remote import RemoteExperts
from sharpi.experts.stats.stats import RemoteStats
from sharpi.system.process import Closing, start_native

TOKENS_BETWEEN = 256  # decoded tokens between two measurements, at least
HYSTERESIS = 1.25  # the other source of experts must be this many times faster


def prefers_remote(is_remote: bool, round_trip: float, read: float) -> bool:
    """Returns True if requests pay more than disk reads; a change has to pay clearly."""
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
        access: "ExpertClient",
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


_SAMPLES = 7  # requests, of which the first ones find pages and caches cold
_COUNTED = 5
_LEAVE_SECONDS = 5.0


class ExpertClient(Closing):
    """Requests the outputs of the experts in `loans` from other ranks.

    `channels` are the connections to these ranks, and `names` their names for the user. `on_note`
    is called with a line for the user about each rank that is lost.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        loans: Sequence[Loan],
        channels: Sequence[RequestChannel],
        names: Sequence[str],
        programs: ExpertPrograms,
        on_note: Callable[[str], None],
    ) -> None:
        self._channels, self._names, self._programs = channels, names, programs
        self._loans, self._on_note = loans, on_note
        self._lock = threading.Lock()  # of `programs`, and of what is pending
        self._pending: list[bytes | None] = [None] * len(channels)
        self._lost = [False] * len(channels)
        self._threads: list[threading.Thread] = []
        self._on_close: Callable[[], None] = lambda: None
        self._selector: ExpertSourceSelector | None = None
        self._channel_locks = [threading.Lock() for _ in channels]
        self.remote = RemoteExperts(shape, len(channels), MAX_TOKENS)
        self._ranks = {channel.other: index for index, channel in enumerate(channels)}
        self._add_lenders()

    def _add_lenders(self) -> None:
        for loan in self._loans:
            index = self._ranks[loan.lender]
            if not self._lost[index]:
                self.remote.add_experts(loan.layer, loan.first, loan.end, index)

    def use_selector(self, selector: ExpertSourceSelector) -> None:
        self._selector = selector

    def count(self, num_tokens: int) -> None:
        if self._selector is not None:
            self._selector.count(num_tokens)

    def pause(self) -> None:
        """Makes steps send no requests from the next one on; any thread may call it."""
        for index in range(len(self._channels)):
            self.remote.remove_rank(index)

    def resume(self) -> None:
        """Makes other ranks read what they lend, and steps send requests again; for any thread."""
        for index, channel in enumerate(self._channels):
            if not self._lost[index]:
                with self._channel_locks[index]:
                    channel.call(WARM_UP, len(WARM_UP))
        self._add_lenders()

    def round_trip(self) -> float:
        """Returns the median seconds of a request to the slowest rank; infinite if all are lost."""
        seconds = []
        for index, channel in enumerate(self._channels):
            if self._lost[index]:
                continue
            loan = next(each for each in self._loans if each.lender == channel.other)
            request, size = self._programs.sample_request(loan.layer, loan.first)
            with self._channel_locks[index]:
                own = [_seconds(channel, request, size) for _ in range(_SAMPLES)]
            seconds.append(statistics.median(own[-_COUNTED:]))
        return max(seconds, default=float("inf"))

    def when_closed(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close

    def start(self, feed: ExpertFeed) -> None:
        """Makes the steps of `feed` send requests, and starts a thread for each connection."""
        self.remote.attach_feed(feed)
        for index in range(len(self._channels)):
            self._begin(self._send_all, index)

    def _begin(self, work: Callable[[int], None], index: int) -> None:
        thread = threading.Thread(target=work, args=(index,), name="expert client", daemon=True)
        self._threads.append(thread)
        start_native(thread)

    def _send_all(self, index: int) -> None:
        """Sends the requests of one connection, until the run ends or the rank is lost."""
        channel = self._channels[index]
        while (request := self.remote.next_request(index)) is not None:
            self._pending[index] = request
            try:
                with self._channel_locks[index]:
                    reply = channel.call(request, self.remote.reply_bytes(index))
            except Exception:  # whatever torch raises for a lost connection
                self.lost(channel.other)
                return
            with self._lock:
                if self._lost[index]:
                    return
                self._pending[index] = None
            self.remote.complete(index, reply)
        if not self._lost[index]:
            self._end(channel)

    def lost(self, rank: int) -> None:
        """Computes a lost rank's replies here from now on; any thread may call it, also again."""
        for index, channel in enumerate(self._channels):
            with self._lock:
                if channel.other != rank or self._lost[index]:
                    continue
                self._lost[index] = True
            self.remote.remove_rank(index)
            self._on_note(f"{self._names[index]} is lost; its experts are read from the disk here")
            self._begin(self._compute_all, index)

    def _compute_all(self, index: int) -> None:
        request = self._pending[index] or self.remote.next_request(index)
        while request is not None:
            self.remote.complete(index, self._own_reply(request))
            request = self.remote.next_request(index)

    def _own_reply(self, request: bytes) -> Bytes | None:
        with self._lock:
            try:
                values = self._programs.compute_reply(np.frombuffer(request, np.uint8))
            except Exception:  # then the step fails, with the reader's error
                return None
            return None if values is None else values.reshape(-1).copy().view(np.uint8)

    @staticmethod
    def _end(channel: RequestChannel) -> None:
        try:
            channel.end()
        except Exception:  # it has ended before
            return

    @property
    def stats(self) -> RemoteStats:
        """The requests to other ranks so far: their number, bytes and seconds."""
        counts = self.remote.counts()
        return RemoteStats(
            questions=sum(each.requests for each in counts),
            bytes_sent=sum(each.sent_bytes for each in counts),
            bytes_received=sum(each.received_bytes for each in counts),
            stall_seconds=sum(each.stall_ns for each in counts) / 1e9,
            round_trip_seconds=sum(each.round_trip_ns for each in counts) / 1e9,
        )

    def close(self) -> None:
        """Ends the threads and the connections; steps may send no more requests."""
        if self._selector is not None:
            self._selector.close()
        self.remote.end()
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            self.remote.close()
            self._programs.close()
        self._on_close()


def _seconds(channel: RequestChannel, request: bytes, size: int) -> float:
    start = time.perf_counter()
    channel.call(request, size)
    return time.perf_counter() - start
