"""RequestGuard: the limits of bodies, the watch over connections, and internal errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits
from sharpi.serve.http.request_guard import CLIENT_CLOSED, RequestGuard

LIMITS = RequestLimits(max_body_bytes=100, part_seconds=0.05, stall_seconds=0.05)


class Connection:
    """The client's end of one request; it sends `chunks` and disconnects on demand."""

    def __init__(self, *chunks: bytes, path: str = "/v1/x", is_complete: bool = True) -> None:
        self.scope: Scope = {"type": "http", "path": path, "method": "POST", "headers": []}
        self._chunks = list(chunks)
        self._is_complete = is_complete
        self.left = asyncio.Event()
        self.reads = True
        self.received: list[Message] = []
        self.reports: list[tuple[int, str]] = []

    async def receive(self) -> Message:
        if self._chunks:
            body = self._chunks.pop(0)
            more = bool(self._chunks) or not self._is_complete
            return {"type": "http.request", "body": body, "more_body": more}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        self.received.append(message)

    async def pass_through(self, app: ASGIApp, told: list[str] | None = None) -> int:
        statuses: list[int] = []
        log = (told if told is not None else []).append
        gate = RequestGuard(
            app, Access(), LIMITS, lambda _, status, *__: statuses.append(status), log
        )
        await asyncio.wait_for(gate(self.scope, self.receive, self.send), 60)
        return statuses[0]

    @property
    def text(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.received)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def test_a_body_in_pieces_comes_whole() -> None:
    async def test() -> None:
        connection = Connection(b"a" * 60, b"b" * 40)
        assert await connection.pass_through(echo) == 200
        assert connection.text == b"a" * 60 + b"b" * 40

    run(test)


@pytest.mark.parametrize("path", ["/v1/x", "/v1/messages"])
def test_a_body_that_is_too_long_is_refused_while_it_comes(path: str) -> None:
    async def test() -> None:
        connection = Connection(*[b"a" * 60] * 3, path=path, is_complete=False)
        assert await connection.pass_through(echo) == 413
        assert (b"request_too_large" in connection.text) is True

    run(test)


def test_a_body_that_says_it_is_too_long_is_not_kept() -> None:
    async def test() -> None:
        connection = Connection(b"")
        connection.scope["headers"] = [(b"content-length", b"101")]
        assert await connection.pass_through(echo) == 413

    run(test)


def test_a_body_that_does_not_come() -> None:
    async def test() -> None:
        connection = Connection(b"a", is_complete=False)
        assert await connection.pass_through(echo) == 408

    run(test)


class TestFaults:
    def test_a_bug_is_a_500_and_one_line(self) -> None:
        async def fail(scope: Scope, receive: Receive, send: Send) -> None:
            raise KeyError("secret")

        async def test() -> None:
            told: list[str] = []
            connection = Connection(b"")
            assert await connection.pass_through(fail, told) == 500
            assert b"server_error" in connection.text
            assert b"secret" not in connection.text
            (line,) = told
            assert "KeyError" in line
            assert "test_gate.py" in line
            assert "\n" not in line

        run(test)

    def test_after_the_response_has_begun_it_ends(self) -> None:
        async def fail(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise KeyError("late")

        async def test() -> None:
            connection = Connection(b"")
            assert await connection.pass_through(fail) == 200
            assert [each["type"] for each in connection.received] == ["http.response.start"]

        run(test)


class TestClientsThatLeave:
    def test_work_is_cancelled_while_it_waits(self) -> None:
        ended = asyncio.Event()

        async def work(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def test() -> None:
            connection = Connection(b"")
            asyncio.get_running_loop().call_later(0.02, connection.left.set)
            assert await connection.pass_through(work) == CLIENT_CLOSED
            assert ended.is_set()

        run(test)

    def test_in_the_midst_of_a_stream(self) -> None:
        sent: list[int] = []

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                sent.append(1)
                await asyncio.sleep(0.001)

        async def test() -> None:
            connection = Connection(b"")
            asyncio.get_running_loop().call_later(0.02, connection.left.set)
            assert await connection.pass_through(stream) == CLIENT_CLOSED
            count = len(sent)
            await asyncio.sleep(0.01)
            assert len(sent) == count > 0

        run(test)

    def test_while_the_body_comes(self) -> None:
        async def test() -> None:
            connection = Connection(b"a", is_complete=False)
            connection.left.set()
            assert await connection.pass_through(echo) == CLIENT_CLOSED
            assert connection.received == []

        run(test)

    def test_applications_are_told(self) -> None:
        seen: list[Any] = []

        async def listen(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            seen.append((await receive())["type"])

        async def test() -> None:
            connection = Connection(b"")
            asyncio.get_running_loop().call_later(0.02, connection.left.set)
            await connection.pass_through(listen)

        run(test)
        assert seen in ([], ["http.disconnect"])

    def test_one_that_stops_reading_is_cut(self) -> None:
        async def test() -> None:
            connection = Connection(b"")
            connection.reads = False
            assert await connection.pass_through(echo) == CLIENT_CLOSED

        run(test)
