"""Server-sent events: framing, beginning, keep-alive and end of a stream."""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
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
    """Returns a server-sent event without a name, with `data` as JSON."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """Returns a server-sent event with the name `data["type"]`, and `data` as JSON."""
    return b"event: " + str(data["type"]).encode() + b"\n" + data_event(data)


async def event_stream(
    events: Events, error_event: Callable[[ApiError], bytes], headers: Mapping[str, str]
) -> "EventResponse":
    """Waits for the first event, and returns the response that streams all events.

    An error before the first event is raised; a later error is sent as an `error_event`.
    """
    try:
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    content = _guarded(first, events, error_event)
    return EventResponse(events, content, headers={**_HEADERS, **headers})


class EventResponse(StreamingResponse):
    """Sends each event as it arrives, and closes `events` however the response ends."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, content: Events, headers: Mapping[str, str]) -> None:
        super().__init__(content, headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams the events; ClientConnection cancels it when the client disconnects."""
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
        if fault is not error and fault.status >= 500:
            _log.error("an answer failed while it was streaming: %r", error)
        yield error_event(fault)
