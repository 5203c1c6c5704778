"""Connections that stay open without a whole request."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from api_server import served
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sharpi.serve import web_server

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.5)

    async def respond(request: object) -> PlainTextResponse:
        return PlainTextResponse("x" * 10_000)

    app = Starlette(routes=[Route("/", respond)])
    with served(app, http=web_server.Connection) as url:
        yield int(url.rpartition(":")[2])


@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("drip", [b"", b"X: y\r\n"], ids=["silent", "dripping"])
def test_a_head_that_does_not_end_closes_the_connection(
    port: int, before: bytes, drip: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(before + HEAD)
        start = time.monotonic()
        while is_open(connection) and time.monotonic() - start < 60:
            with suppress(OSError):
                connection.sendall(drip)
            time.sleep(0.05)
        assert time.monotonic() - start < 60


def is_open(connection: socket.socket) -> bool:
    """Reads what has come; returns whether the connection is still open."""
    connection.settimeout(0.01)
    try:
        return connection.recv(1 << 16) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_an_idle_connection_is_kept_for_the_next_request(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        assert client.get("/").status_code == 200
        time.sleep(0.8)
        assert client.get("/").status_code == 200
