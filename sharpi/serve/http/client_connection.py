"""ClientConnection: one request and its response, with both ends of the connection watched.

The application runs as a task, which is cancelled when the client has disconnected or stopped
reading. So the work for an answer ends with the connection, streaming or not.
"""

import asyncio
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharpi.serve.http.request_body import ClientGone


class ClientConnection:
    """Runs the application for one request; `status` is the response's, None before it begins."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, stall_seconds: float) -> None:
        self.scope, self.status = scope, None
        self.request_id = "req_" + secrets.token_hex(12)
        self.closes = False  # no further request is read from the connection
        self._receive, self._send, self._stall_seconds = receive, send, stall_seconds
        self._has_ended = False
        self._is_gone = asyncio.Event()

    status: int | None

    async def run(self, app: ASGIApp, body: bytes) -> None:
        """Runs the application with the whole body.

        Raises ClientGone or the application's error.
        """
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if parts:
                return parts.pop()
            await self._is_gone.wait()
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(app(self.scope, receive, self.send))
        watch = asyncio.ensure_future(self._wait_until_gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not self._has_ended:
                raise ClientGone
            await work
        finally:
            await _ended(watch)
            await _ended(work)
            # An error's traceback has this frame: the task in it would keep error and body alive.
            del work, watch

    async def send(self, message: Message) -> None:
        """Sends a message to the client; raises ClientGone if it does not read."""
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *self._own_headers()]}
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            raise ClientGone from None
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body")

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the request id by its names in both APIs, and whether the connection closes."""
        request_id = self.request_id.encode()
        close = [(b"connection", b"close")] if self.closes else []
        return [(b"x-request-id", request_id), (b"request-id", request_id), *close]

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone.set()


async def _ended(task: "asyncio.Future[None]") -> None:
    """Cancels a running task, and waits until its generators are closed."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # raised elsewhere or not needed; reading it keeps asyncio from logging it
