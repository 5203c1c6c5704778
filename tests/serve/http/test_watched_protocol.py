"""Connections that stay open without a whole request, or send too many at once."""

import resource
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from api_server import served
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sharpi.serve.http import watched_protocol
from sharpi.serve.http.watched_protocol import WatchedProtocol

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(watched_protocol, "HEAD_SECONDS", 0.3)

    async def respond(request: object) -> PlainTextResponse:
        return PlainTextResponse("x" * 10_000)

    app = Starlette(routes=[Route("/", respond)])
    with served(app, http=WatchedProtocol) as url:
        yield int(url.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def rest_of(connection: socket.socket) -> bytes:
    """Returns what comes until the server closes the connection."""
    data = b""
    while True:
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part


def test_a_silent_connection_is_closed(port: int) -> None:
    with connect(port) as connection:
        assert rest_of(connection) == b""


def test_half_a_head_is_answered_408(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD)
        assert rest_of(connection).startswith(b"HTTP/1.1 408 ")


def test_a_head_that_drips_does_not_last_longer(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD)
        start = time.monotonic()
        try:
            while time.monotonic() - start < 60:
                connection.sendall(b"X: y\r\n")
                time.sleep(0.05)
        except OSError:
            return
    pytest.fail("the connection was still open")


def test_so_is_the_second_request_of_a_connection(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD + b"\r\n" + HEAD)
        data = rest_of(connection)
    assert data.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in data


def test_an_idle_connection_is_kept_for_the_next_request(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_protocol, "HEAD_SECONDS", 1.0)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        assert client.get("/").status_code == 200
        time.sleep(1.2)
        assert client.get("/").status_code == 200


def test_idle_connections_give_way_to_new_ones(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_protocol, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(watched_protocol, "_RESERVED_FILES", -3)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, 0))
    idle = [connect(port) for _ in range(20)]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        assert client.get("/").status_code == 200
    assert rest_of(idle[0]) == b""
    for connection in idle:
        connection.close()


def test_requests_sent_far_ahead_end_the_connection(port: int) -> None:
    def send_without_end(connection: socket.socket) -> None:
        for _ in range(2000):
            connection.sendall((HEAD + b"\r\n") * 2000)

    with connect(port) as connection, pytest.raises(OSError, match=r"reset|[Bb]roken|abort"):
        send_without_end(connection)
