"""WatchedProtocol: uvicorn's HTTP protocol, with limits on time, connections and pipelining.

uvicorn limits neither the time for a request's head, nor the number of connections, nor how many
bytes a client sends before its earlier requests are answered. Without these limits, one client
could block all other clients.
"""

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

HEAD_SECONDS = 30.0  # for the whole head of a request
_MOST_AHEAD = 64 << 10  # bytes of later requests that a client may send during a response
_RESERVED_FILES = 64  # open files that sharpi needs besides its connections
_MOST_FILES = 1 << 16


def raise_file_limit() -> int:
    """Raises the process's limit of open files to the hard limit, at most 65536; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)


class WatchedProtocol(H11Protocol):
    """A connection that is closed if no request arrives in time, or to accept a newer one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timer for the first request's head, and limits the open connections."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers, because they hold references to the connection."""
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handles received bytes; aborts a connection that sends 64 KiB ahead during an answer."""
        super().data_received(data)
        if not self._is_answering:
            self._wait_for_head()
            return
        self._stop_head_timer()
        if self.flow.read_paused and len(self.conn.trailing_data[0]) > _MOST_AHEAD:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Starts the timer for the next request's head if part of it has arrived already."""
        super().on_response_complete()
        self._since = self.loop.time()
        if not self._is_answering and self.conn.trailing_data[0]:
            self._wait_for_head()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, even if its client has not read the last response."""
        super().timeout_keep_alive_handler()
        self._drop_unread()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _rank(self) -> tuple[int, float]:
        """The sort key (stage, time); the connection with the lowest key is closed first.

        Stage 0 has no request, 1 an incomplete body, 2 a complete request. The time is the event
        loop's clock when the client connected or its last response was complete.
        """
        kind = (1 if self.cycle.more_body else 2) if self._is_answering else 0
        return kind, self._since

    def _make_room(self) -> None:
        """Aborts the connection with the lowest `_rank` if too many connections are open.

        If all others are answering a complete request, aborts this connection instead.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED_FILES
        if len(self.connections) <= max(limit, 1):
            return
        known = (each for each in self.connections if isinstance(each, WatchedProtocol))
        others = [each for each in known if not each.transport.is_closing()]
        if len(others) <= max(limit, 1):
            return
        first = min(others, key=lambda each: each._rank, default=self)
        (first if first._rank[0] < 2 else self).transport.abort()

    def _wait_for_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self._is_answering:
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._send_408()
        self.transport.close()
        self._drop_unread()

    def _send_408(self) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        reason = STATUS_PHRASES[408]
        response = h11.Response(status_code=408, headers=headers, reason=reason)
        self.transport.write(self.conn.send(response) or b"")

    def _drop_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
