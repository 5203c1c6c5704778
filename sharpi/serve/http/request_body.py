"""The body of a request, read whole and within limits before anything is done with it."""

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from sharpi.serve.http.errors import ApiError
from sharpi.units import format_bytes

_DISCARD_SECONDS = 2.0
_LAST = {"Connection": "close"}  # what else comes on this connection cannot be told apart


class ClientGone(Exception):
    """The connection was closed by its other end."""


async def read_body(
    receive: Receive, headers: Mapping[str, str], max_bytes: int, patience_seconds: float
) -> bytes:
    """All of it; ApiError 413 as soon as it is too long, 408 where it does not come."""
    length = headers.get("content-length", "0")
    body = bytearray()
    more = True
    while more:
        if len(body) > max_bytes or (length.isdecimal() and int(length) > max_bytes):
            await _discard(receive, patience_seconds)
            limit = format_bytes(max_bytes)
            message = f"the request is longer than {limit}"
            raise ApiError(413, message, "request_too_large", headers=_LAST)
        chunk, more = await _next_chunk(receive, patience_seconds)
        body += chunk
    return bytes(body)


async def _next_chunk(receive: Receive, patience_seconds: float) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(patience_seconds):
            event = await receive()
    except TimeoutError:
        message = "the rest of the request did not come"
        raise ApiError(408, message, "timeout", headers=_LAST) from None
    if event["type"] == "http.disconnect":
        raise ClientGone
    return event.get("body", b""), event.get("more_body", False)


async def _discard(receive: Receive, patience_seconds: float) -> None:
    """Reads on for a moment: many clients look for a response only once they have sent all."""
    more = True
    try:
        async with asyncio.timeout(min(_DISCARD_SECONDS, patience_seconds)):
            while more:
                _, more = await _next_chunk(receive, patience_seconds)
    except (TimeoutError, ApiError):
        return
