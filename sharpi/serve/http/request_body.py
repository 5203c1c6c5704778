"""Reads the whole body of a request, within limits, before the request is handled."""

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from sharpi.serve.http.errors import ApiError
from sharpi.units import format_bytes

_DISCARD_SECONDS = 2.0
_LAST = {"Connection": "close"}  # later data on this connection could not be told from the body


class ClientGone(Exception):
    """The client has closed the connection."""


async def read_body(
    receive: Receive, headers: Mapping[str, str], max_bytes: int, patience_seconds: float
) -> bytes:
    """Returns the whole body.

    Raises ApiError 413 if it is too long, 408 if it does not arrive in time.
    """
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
        message = "the rest of the request did not arrive"
        raise ApiError(408, message, "timeout", headers=_LAST) from None
    if event["type"] == "http.disconnect":
        raise ClientGone
    return event.get("body", b""), event.get("more_body", False)


async def _discard(receive: Receive, patience_seconds: float) -> None:
    """Reads on for a moment, since many clients only read a response after sending everything."""
    more = True
    try:
        async with asyncio.timeout(min(_DISCARD_SECONDS, patience_seconds)):
            while more:
                _, more = await _next_chunk(receive, patience_seconds)
    except (TimeoutError, ApiError):
        return
