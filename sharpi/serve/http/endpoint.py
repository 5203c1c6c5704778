"""Endpoint: a method and path of the server, with its handler and the type of its body."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from sharpi.serve.http.access import PAGE_FOLDER
from sharpi.serve.http.body import Body, build_decoder, decode_body
from sharpi.serve.http.json_size import check_json_size

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
B = TypeVar("B", bound=Body)
T = TypeVar("T")
_SMALL = 4 << 10  # bytes; smaller bodies are parsed without counting their values


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
        self.endpoints = tuple(endpoints)
        for each in endpoints:
            if each.body is not None:
                build_decoder(each.body)
        self._routes = [(each, route) for each in endpoints for route in each.routes]

    @property
    def routes(self) -> list[Route]:
        """The Starlette routes of all endpoints."""
        return [route for _, route in self._routes]

    def find(self, scope: Scope) -> Endpoint | None:
        """Returns the endpoint with the request's path and method; None without one."""
        matches = (each for each, route in self._routes if route.matches(scope)[0] is Match.FULL)
        return next(matches, None)

    def takes_body(self, scope: Scope) -> bool:
        """Returns whether the request's endpoint has a JSON body."""
        endpoint = self.find(scope)
        return endpoint is not None and endpoint.body is not None

    def label(self, scope: Scope) -> str:
        """Returns the label of a request in metrics: the endpoint's path, "/page/" or "other".

        Raw paths would create an unlimited number of labels.
        """
        if scope["path"].startswith(PAGE_FOLDER):
            return PAGE_FOLDER
        found = (each for each, route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return next((each.path for each in found), "other")


async def prepared(request: Request, kind: type[B], prepare: Callable[[B], T]) -> T:
    """Decodes the body to `kind` and returns `prepare(body)`, both in a worker thread."""
    data = await request.body()
    return await asyncio.to_thread(lambda: prepare(read_body_as(data, kind)))


def read_body_as(data: bytes, kind: type[B]) -> B:
    """Decodes a JSON body to `kind`; raises ApiError if it is invalid or has too many values."""
    if len(data) > _SMALL:
        check_json_size(data)
    return decode_body(data, kind)
