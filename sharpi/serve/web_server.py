"""WebServer: uvicorn on a bound socket, without its logs and with a graceful shutdown.

After the first SIGTERM, SIGHUP or Ctrl-C, new answers are refused, and open answers have a grace
period to finish. Then they are cancelled, and their clients receive a finish reason or an error.
The second signal cuts them off at once; after the third, the server exits without doing so.
"""

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.watched_protocol import WatchedProtocol, raise_file_limit
from sharpi.system.heaps import trim_heaps

# Longer than clients keep a connection, so that none writes to a closed one.
_KEEP_ALIVE_SECONDS = 75
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NUM_PREPARING = 12  # threads that prepare requests; up to half of them may compile grammars
_SWITCH_SECONDS = 0.0005  # a tenth of Python's default: a busy thread yields to another after this
_OBJECTS_BETWEEN_COLLECTIONS = 5_000  # new objects between two garbage collections
# Connections that asyncio accepts in one call, before WatchedProtocol can limit their number; fewer
# than the reserved file descriptors.
_NUM_ACCEPTED = 16
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
                http=WatchedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
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
        """Serves until shutdown, with 12 threads that prepare requests.

        It raises the limit of open files. Because each busy thread can delay the event loop by
        Python's switch interval, it shortens that interval.
        """
        raise_file_limit()
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
    """Makes garbage collections frequent again, but excludes objects that exist already.

    The command line makes collections rare, to start quickly. With rare collections, a server
    would accumulate megabytes of garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
