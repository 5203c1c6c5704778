"""Serves an application on a port of its own, in a thread of the test."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

_TIMEOUT_SECONDS = 60.0


@contextmanager
def served(app: ASGIApp, **settings: Any) -> Iterator[str]:
    """Yields the URL of the application; `settings` are uvicorn's."""
    listener = socket.create_server(("127.0.0.1", 0))
    # As asyncio does for a socket that names its protocol; a body would wait 40 ms for its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", **settings)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        _wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_TIMEOUT_SECONDS)
        listener.close()


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
