"""Server-sent events: how they are framed, begun, kept alive and ended."""

import json
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sharpi.serve.http.errors import ApiError, as_api_error

Events: TypeAlias = AsyncGenerator[bytes, None]

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_log = logging.getLogger(__name__)


def data_event(data: object) -> bytes:
    """An event without a name."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """An event that bears its data's type as its name."""
    return b"event: " + str(data["type"]).encode() + b"\n" + data_event(data)


async def event_stream(events: Events, error_event: Callable[[ApiError], bytes]) -> "EventResponse":
    """The response, once there is a first event; what fails before is raised, later it is sent."""
    try:
        return EventResponse(await anext(events), events, error_event)
    except BaseException:
        await events.aclose()
        raise


class EventResponse(StreamingResponse):
    """Each event is sent as it comes; the events are closed, whatever ends the response."""

    def __init__(
        self, first: bytes, events: Events, error_event: Callable[[ApiError], bytes]
    ) -> None:
        super().__init__(
            _guarded(first, events, error_event), media_type="text/event-stream", headers=_HEADERS
        )
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever called cancels it when the client leaves: the exchange does."""
        try:
            await self.stream_response(send)
        finally:
            await self._events.aclose()


async def _guarded(
    first: bytes, events: Events, error_event: Callable[[ApiError], bytes]
) -> Events:
    yield first
    try:
        async for event in events:
            yield event
    except Exception as error:
        fault = as_api_error(error)
        if fault.status >= 500:
            _log.error("an answer failed under way", exc_info=error)
        yield error_event(fault)
