"""ClientConnection runs the application for a request; BodyReader reads a body within limits.

The application runs as a task, which is cancelled when the client disconnects or stops reading. So
an answer ends with the connection, even if it is not streamed.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharpi.serve.http.errors import ApiError, too_much
from sharpi.units import format_bytes

_DISCARD_SECONDS = 2.0
LAST = {"Connection": "close"}  # later data could not be distinguished from the body
_SMALL = 64 << 10  # bytes that any body may have
_LEAST_RATE = 16 << 10  # bytes per second that a slow body must reach


class ClientDisconnected(Exception):
    """Raised when the client has closed the connection or stopped reading."""


class RequestLimits(Struct, frozen=True):
    """The limits on the size of a request body, and on the time for reading and sending."""

    max_body_bytes: int = 32 << 20
    part_seconds: float = 30.0  # for each part of the body to arrive
    stall_seconds: float = 60.0  # for the client to receive each message


class BodyReader:
    """Reads request bodies; together they may take four times the largest allowed body."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._most = max(4 * limits.max_body_bytes, 1 << 20)
        self._held = 0

    @asynccontextmanager
    async def read(self, receive: Receive, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Reads the complete body, which counts towards the total limit during the `with` block.

        Raises ApiError 413 if it is too long, 408 if it does not arrive in time, and 429 if all
        bodies together exceed their limit.
        """
        body, num_bytes = bytearray(), 0
        try:
            await self._read_into(body, receive, headers)
            whole, num_bytes = [bytes(body)], len(body)
            body.clear()
            yield whole.pop()
        finally:
            self._held -= num_bytes or len(body)

    async def _read_into(
        self, body: bytearray, receive: Receive, headers: Mapping[str, str]
    ) -> None:
        length, most = headers.get("content-length", "0"), self._limits.max_body_bytes
        if length.isdecimal() and int(length) > most:
            await self._refuse_length(receive)
        more, deadline = True, time.monotonic() + self._limits.part_seconds
        while more:
            late_by = time.monotonic() - deadline
            chunk, more = await self._next_chunk(receive, late_by * _LEAST_RATE > len(body))
            body += chunk
            self._held += len(chunk)
            if len(body) > _SMALL and self._held > self._most:
                error = too_much("too many long requests arrive at once")
                error.headers |= LAST
                raise error
            if len(body) > most:
                await self._refuse_length(receive)

    async def _next_chunk(self, receive: Receive, is_late: bool) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(0 if is_late else self._limits.part_seconds):
                event = await receive()
        except TimeoutError:
            message = "the rest of the request did not arrive"
            raise ApiError(408, message, "timeout", headers=LAST) from None
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        return event.get("body", b""), event.get("more_body", False)

    async def _refuse_length(self, receive: Receive) -> None:
        """Raises ApiError 413, after reading for 2 s because many clients send the body first."""
        more = True
        try:
            async with asyncio.timeout(min(_DISCARD_SECONDS, self._limits.part_seconds)):
                while more:
                    _, more = await self._next_chunk(receive, is_late=False)
        except (TimeoutError, ApiError):
            pass
        message = f"the request is longer than {format_bytes(self._limits.max_body_bytes)}"
        raise ApiError(413, message, "request_too_large", headers=LAST)


class ClientConnection:
    """Runs the application for one request, and sends its response.

    `status` is the response's status, None until the response begins.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, stall_seconds: float) -> None:
        self.scope, self.status = scope, None
        self.request_id = "req_" + secrets.token_hex(12)
        self.closes = False  # whether to close the connection after the response
        self._receive, self._send, self._stall_seconds = receive, send, stall_seconds
        self._has_ended = False
        self._is_disconnected = asyncio.Event()

    status: int | None

    async def run(self, app: ASGIApp, body: bytes) -> None:
        """Runs the application with a whole body; raises its error, or ClientDisconnected."""
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if parts:
                return parts.pop()
            await self._is_disconnected.wait()
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(app(self.scope, receive, self.send))
        watch = asyncio.ensure_future(self._wait_until_disconnected())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not self._has_ended:
                raise ClientDisconnected
            await work
        finally:
            await _ended(watch)
            await _ended(work)
            # An error's traceback holds this frame, whose task would keep error and body alive.
            del work, watch

    async def send(self, message: Message) -> None:
        """Sends an ASGI message; raises ClientDisconnected if the client does not read it."""
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *self._own_headers()]}
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            raise ClientDisconnected from None
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body")

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns two headers with the request id, and `Connection: close` if needed."""
        request_id = self.request_id.encode()
        close = [(b"connection", b"close")] if self.closes else []
        return [(b"x-request-id", request_id), (b"request-id", request_id), *close]

    async def _wait_until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_disconnected.set()


async def _ended(task: "asyncio.Future[None]") -> None:
    """Cancels a running task, and waits until its generators are closed."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # raised elsewhere or not needed; reading it keeps asyncio from logging it
