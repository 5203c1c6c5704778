"""WebServer: uvicorn on a bound socket, without its logs and with a graceful shutdown.

A Connection is closed if the head of its request does not arrive in time.

After the first SIGTERM, SIGHUP or Ctrl-C, new answers are refused, and open answers have a grace
period to finish. Then they are cancelled, and their clients receive a finish reason or an error.
The second signal cuts them off at once; after the third, the server exits without doing so.
"""

import asyncio
import errno
import gc
import ipaddress
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sharpi.errors import UsageError
from sharpi.serve.host.model_host import ModelHost
from sharpi.system.process import trim_heaps

HEAD_SECONDS = 30.0  # for the whole head of a request


class Connection(H11Protocol):
    """A connection with a limit on the time for a request's head, which uvicorn lacks."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timer for the first request's head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer, which holds a reference to the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handles received bytes; a head that is incomplete has the rest of its time."""
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


# Longer than clients keep a connection, so that none writes to a closed one.
_KEEP_ALIVE_SECONDS = 75
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NUM_PREPARING = 12  # threads that prepare requests; up to half of them may compile grammars
_SWITCH_SECONDS = 0.0005  # a tenth of Python's default: a busy thread yields to another after this
_OBJECTS_BETWEEN_COLLECTIONS = 5_000  # new objects between two garbage collections
_NUM_ACCEPTED = 16  # connections that asyncio accepts in one call
_RESERVED_FILES = 64  # open files that sharpi needs besides its connections
_MOST_FILES = 1 << 16
_BACKLOG = 2048  # the system's backlog of connections to accept
_TICKS_BETWEEN_TRIMS = 100  # of uvicorn's ticks, ten per second
_CANCEL_SECONDS = 5.0  # time for clients to read the end of cancelled answers


class WebServer(uvicorn.Server):
    """Serves `app` until it is stopped; open answers then have `grace_seconds` to finish."""

    def __init__(self, app: ASGIApp, host: ModelHost, grace_seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                limit_concurrency=_raise_file_limit() - _RESERVED_FILES,
                backlog=_NUM_ACCEPTED,
                timeout_graceful_shutdown=max(1, round(grace_seconds + _CANCEL_SECONDS)),
            )
        )
        self._host, self._grace_seconds = host, grace_seconds
        self._num_signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Stops the server as SIGTERM does; any thread may call it."""
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until shutdown; threads that prepare requests yield to the event loop early."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        _collect_garbage_of_requests()
        threads = ThreadPoolExecutor(_NUM_PREPARING, thread_name_prefix="prepare")
        asyncio.get_running_loop().set_default_executor(threads)
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen; the backlog is longer than what asyncio accepts at once."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Returns whether the server should end; frees unused memory every 10 seconds."""
        if counter % _TICKS_BETWEEN_TRIMS == 0:
            asyncio.get_running_loop().run_in_executor(None, _trim_memory)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses new answers, and ends open ones after the grace period; called by uvicorn."""
        self._host.stop()
        self._loop = asyncio.get_running_loop()
        cancel = self._loop.call_later(self._grace_seconds, self._host.cancel_all)
        try:
            await super().shutdown(sockets)
        finally:
            cancel.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles stop signals during the `with` block.

        Unlike uvicorn's method, it does not raise them again at the end, so that the engine can
        close. A signal before the server runs stops it as soon as it runs.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
        before = [signal.signal(number, self._stop_on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _stop_on_signal(self, number: int, frame: FrameType | None) -> None:
        self._num_signals += 1
        self.should_exit = True
        if self._num_signals == 2:
            self._grace_seconds = 0.0
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._host.cancel_all)
        self.force_exit = self._num_signals > 2


def _trim_memory() -> None:
    """Frees reference cycles that requests left, and returns free pages to the system."""
    gc.collect()
    trim_heaps()


def _collect_garbage_of_requests() -> None:
    """Makes collections, rare since the start, frequent again, but not of what exists."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def _raise_file_limit() -> int:
    """Raises the process's limit of open files to the hard limit, at most 65536; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)


_UNREAD_MILLISECONDS = 60_000  # the system drops a peer that acknowledges nothing for this long


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening socket, on a free port for port 0; raises UsageError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(_refusal(host, port, error)) from None
    return listener


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, 0 takes a free one"
    if error.errno == errno.EACCES:
        return (
            f"port {port} needs privileges that you do not have; choose 1024 or higher with --port"
        )
    return f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"


def is_loopback(listener: socket.socket) -> bool:
    """Returns whether the socket is bound to a loopback address."""
    return _address(listener).is_loopback


def url_of(listener: socket.socket) -> str:
    """Returns the URL of the socket for clients on this machine, without a trailing slash."""
    address, port = _address(listener), listener.getsockname()[1]
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    name = str(address) if address.version == 4 else f"[{address}]"
    return f"http://{name}:{port}"


def _address(listener: socket.socket) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
