"""Endpoint: a path of the server with its handler, the type of its body, and its stream of events.

The files of the web page are endpoints, too. Bodies are msgspec Structs. Members that a Struct does
not declare are ignored: clients send every server the same ones. Those that would change the answer
are in `refused`, and are refused unless their value has no effect.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from sharpi.resources import page_folder
from sharpi.serve.http.access import PAGE_FOLDER
from sharpi.serve.http.errors import ApiError, as_api_error, invalid_request

Kind = TypeVar("Kind", bound="Body")
Refusals = Mapping[str, tuple[tuple[object, ...], str]]  # values without effect, and the reason
_SURROGATE = b"\\ud"
_HALF = re.compile("[\ud800-\udfff]")
_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*?)`")


class Body(Struct, kw_only=True, omit_defaults=True):
    """An object in a request; null stands for an absent member."""

    refused: ClassVar[Refusals] = {}


def build_decoder(kind: type[Body]) -> None:
    """Builds msgspec's table of a kind of body; called before threads decode any.

    msgspec publishes a type's table before it has filled it. Two threads that each use a type for
    the first time would crash the process.
    """
    msgspec.json.Decoder(kind)


def decode_body(data: bytes, kind: type[Kind]) -> Kind:
    """Decodes a JSON body to `kind`; raises ApiError, which names the invalid member."""
    value = _json(data)
    if isinstance(value, dict):
        _check_refused(value, kind.refused)
    try:
        # Not strict: some clients write 3.0 for 3.
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise _invalid(str(error)) from None


def _check_refused(value: Mapping[str, object], refused: Refusals) -> None:
    for name in value.keys() & refused.keys():
        neutral, why = refused[name]
        if value[name] is not None and value[name] not in neutral:
            raise invalid_request(f"'{name}' cannot be honoured: {why}", param=name)


def _invalid(message: str) -> ApiError:
    """Returns ApiError 400 for msgspec's message, which ends with the invalid member's path."""
    place = _PLACE.search(message)
    path = place[1] if place else ""
    text = _PLACE.sub("", message)
    if missing := _MISSING.match(text):
        path = f"{path}.{missing[1]}" if path else missing[1]
        text = "is required"
    text = text.replace("`object`, got `array`", "a JSON object, got `array`")
    return invalid_request(f"'{path}': {text}" if path else f"the body: {text}", param=path or None)


def _json(data: bytes) -> object:
    """Parses JSON; lone surrogates, as at the end of truncated texts, become U+FFFD."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if _SURROGATE not in data.lower():
            raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None
    try:
        return _without_halves(json.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None


def _without_halves(value: object) -> object:
    match value:
        case str():
            return _HALF.sub("\ufffd", value)
        case list():
            return [_without_halves(each) for each in value]
        case dict():
            return {_HALF.sub("\ufffd", k): _without_halves(v) for k, v in value.items()}
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Endpoint(Struct, frozen=True):
    """A method and path with its handler; the OpenAPI document shows the handler's docstring."""

    method: str
    path: str
    respond: Handler
    body: type[Body] | None = None  # None if the endpoint takes no body
    other_paths: tuple[str, ...] = ()  # paths that clients of other servers use
    streams: bool = False  # may answer with server-sent events
    is_public: bool = True  # listed in the OpenAPI document

    @property
    def routes(self) -> list[Route]:
        """The Starlette routes of all paths of the endpoint; GET includes HEAD."""
        paths = (self.path, *self.other_paths)
        return [Route(path, self.respond, methods=[self.method]) for path in paths]


class EndpointTable:
    """All endpoints, with look-up by path and method; the decoders of their bodies are built."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        for each in endpoints:
            if each.body is not None:
                build_decoder(each.body)
        self._routes = [(each, route) for each in endpoints for route in each.routes]

    @property
    def routes(self) -> list[Route]:
        """The Starlette routes of all endpoints."""
        return [route for _, route in self._routes]

    def takes_body(self, scope: Scope) -> bool:
        """Returns whether the request's endpoint has a JSON body."""
        matches = (each for each, route in self._routes if route.matches(scope)[0] is Match.FULL)
        endpoint = next(matches, None)
        return endpoint is not None and endpoint.body is not None

    def label(self, scope: Scope) -> str:
        """Returns the endpoint's path, "/page/" or "other", since raw paths are without limit."""
        if scope["path"].startswith(PAGE_FOLDER):
            return PAGE_FOLDER
        found = (each for each, route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return next((each.path for each in found), "other")


async def prepared(request: Request, kind: type[Kind], prepare: Callable[[Kind], T]) -> T:
    """Decodes the body to `kind` and returns `prepare(body)`, both in a worker thread."""
    data = await request.body()
    return await asyncio.to_thread(lambda: prepare(decode_body(data, kind)))


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The page may load only its own files: no code that a model writes, and nothing from other hosts.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)


class PageFile(Struct, frozen=True):
    """One file of the web page, with its content in memory."""

    content: bytes
    media_type: str
    tag: str  # changes whenever the content does

    async def respond(self, request: Request) -> Response:
        """Returns the file, or status 304 if the client has this version cached."""
        headers = self._headers()
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)

    def _headers(self) -> dict[str, str]:
        """Returns headers for caching with revalidation, and for security."""
        return {
            "Cache-Control": "no-cache",
            "ETag": self.tag,
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


def page_endpoints() -> list[Endpoint]:
    """Returns the endpoints of `/`, and of all files that the web page loads, under `/page/`."""
    folder = page_folder()
    files = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return [_endpoint(folder, path) for path in files]


def _endpoint(folder: Path, path: Path) -> Endpoint:
    name = path.relative_to(folder).as_posix()
    address = "/" if name == "index.html" else f"{PAGE_FOLDER}{name}"
    return Endpoint("GET", address, _read(path).respond, is_public=False)


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return PageFile(content, _TYPES[path.suffix], tag)


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
    """Returns the stream after its first event, whose error is raised; later ones are events."""
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
