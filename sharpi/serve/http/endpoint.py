"""Endpoint: a method and path of the server, with its handler and the type of its body.

The files of the web page are endpoints, too, and so is the OpenAPI document of all of them.
"""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from sharpi import __version__
from sharpi.resources import page_folder
from sharpi.serve.http.access import PAGE_FOLDER
from sharpi.serve.http.body import Body, build_decoder, decode_body

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
B = TypeVar("B", bound=Body)
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


_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_ERROR = {
    "description": "A refusal or a failure, in the form of the path's API.",
    "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}},
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
        }
    },
}


def openapi_endpoint(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Returns the endpoint GET /openapi.json, which describes `endpoints`.

    The document is built when it is first asked for, because that takes longer than the rest of
    the application.
    """
    document = cache(lambda: openapi_document(endpoints))

    async def openapi(request: Request) -> Response:
        """Describes the server's endpoints and what their bodies may hold."""
        return JSONResponse(await asyncio.to_thread(document))

    return Endpoint("GET", "/openapi.json", openapi)


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document of all public endpoints."""
    described = [each for each in endpoints if each.is_public]
    bodies = [each.body for each in described if each.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    schema_of = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in described:
        path = _PARAMETER.sub(r"{\1}", each.path)
        schema = None if each.body is None else schema_of[each.body]
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sharpi", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR_SCHEMA}},
    }


def _operation(endpoint: Endpoint, schema: dict[str, Any] | None) -> dict[str, Any]:
    summary = (inspect.getdoc(endpoint.respond) or "").partition("\n")[0]
    content: dict[str, Any] = {
        "text/plain" if endpoint.path == "/metrics" else "application/json": {}
    }
    if endpoint.streams:
        content["text/event-stream"] = {}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": content}, "default": _ERROR},
    }
    names = _PARAMETER.findall(endpoint.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if schema is not None:
        body = {"content": {"application/json": {"schema": schema}}, "required": True}
        operation["requestBody"] = body
    return operation
