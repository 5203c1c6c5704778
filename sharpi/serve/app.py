"""Builds the ASGI application: the routes of all endpoints behind a RequestGuard."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from sharpi.serve.anthropic import stream as anthropic_routes
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits
from sharpi.serve.http.endpoint import Endpoint, EndpointTable, page_endpoints
from sharpi.serve.http.errors import ApiError, error_response
from sharpi.serve.http.openapi_document import openapi_endpoint
from sharpi.serve.http.request_guard import RequestGuard
from sharpi.serve.llamacpp import routes as llamacpp_routes
from sharpi.serve.openai import routes as openai_routes
from sharpi.serve.status import slot_routes, status_routes

_SEE_PATHS = "; /openapi.json lists every path"
_NO_EMBEDDINGS = "; this server computes no embeddings, ask one with a model for them"


def log_line(text: str) -> None:
    """Prints a line to stderr."""
    print(text, file=sys.stderr, flush=True)


class AppSettings(Struct, frozen=True):
    """The settings of the application: access control, request limits and logs."""

    access: Access = field(default_factory=Access)
    limits: RequestLimits | None = None  # None derives the longest body from the context size
    origins: Sequence[str] = ()  # web pages whose requests get CORS headers
    logs_requests: bool = False
    slot_folder: Path | None = None  # for the files that clients save slots to
    log: Callable[[str], None] = log_line  # prints one line to the log


def build_app(host: ModelHost, settings: AppSettings, chats: ChatModels | None = None) -> ASGIApp:
    """Returns the ASGI application; `chats` may already hold a prepared ChatModel."""
    table = EndpointTable(_endpoints(host, chats or ChatModels(host), settings.slot_folder))
    handlers = {HTTPException: _refuse, Exception: _fail}
    inner = Starlette(routes=table.routes, exception_handlers=handlers)

    report = host.metrics.reporter(table.label, settings.log if settings.logs_requests else None)
    limits = settings.limits or RequestLimits(host.max_body_bytes)
    guard = RequestGuard(
        inner, settings.access, limits, report, settings.log, table.takes_body, host.admitted
    )
    if not settings.origins:
        return guard
    return CORSMiddleware(guard, settings.origins, allow_methods=["*"], allow_headers=["*"])


def _endpoints(host: ModelHost, chats: ChatModels, slot_folder: Path | None) -> list[Endpoint]:
    described = [
        *api_endpoints(host, chats),
        *status_routes.endpoints(host),
        *slot_routes.endpoints(host, slot_folder),
    ]
    return [*described, openapi_endpoint(described), *page_endpoints()]


def api_endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of OpenAI's and Anthropic's APIs, and of llama.cpp's own."""
    apis = (openai_routes, anthropic_routes, llamacpp_routes)
    return [each for api in apis for each in api.endpoints(host, chats)]


def _refuse(request: Request, error: Exception) -> Response:
    """Returns the error response for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} {path[:200]}: {error.detail}"
    if error.status_code == 404:
        message += _NO_EMBEDDINGS if path.endswith("/embeddings") else _SEE_PATHS
    return error_response(path, ApiError(error.status_code, message, headers=error.headers))


def _fail(request: Request, error: Exception) -> Response:
    """Returns the response to an error, which Starlette raises again for RequestGuard's log."""
    return error_response(request.url.path, error)
