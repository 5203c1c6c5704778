"""The ASGI application: all routes behind the request guard."""

import sys
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from sharpi.serve.anthropic import routes as anthropic_routes
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.access import PAGE_FOLDER, Access
from sharpi.serve.http.errors import ApiError, error_response
from sharpi.serve.http.page_files import page_routes
from sharpi.serve.http.request_guard import RequestGuard, RequestLimits
from sharpi.serve.openai import routes as openai_routes
from sharpi.serve.status import status_routes, token_routes
from sharpi.serve.status.live_experts import live_experts_route


def log_line(text: str) -> None:
    """Prints a line to stderr."""
    print(text, file=sys.stderr, flush=True)


class AppSettings(Struct, frozen=True):
    """The settings of access, limits and logs."""

    access: Access = field(default_factory=Access)
    limits: RequestLimits = field(default_factory=RequestLimits)
    origins: Sequence[str] = ()  # get CORS headers
    logs_requests: bool = False
    tell: Callable[[str], None] = log_line  # prints a line of the log


def build_app(host: ModelHost, settings: AppSettings) -> ASGIApp:
    """Returns the application of one host."""
    routes = _routes(host)
    handlers = {HTTPException: _refuse, Exception: _fail}
    inner = Starlette(routes=routes, exception_handlers=handlers)

    def report(scope: Scope, status: int, seconds: float) -> None:
        host.metrics.request(_route_of(routes, scope), status)
        if settings.logs_requests:
            settings.tell(f"{scope['method']} {scope['path']!r} {status} {seconds:.3f} s")

    guard = RequestGuard(inner, settings.access, settings.limits, report, settings.tell)
    if not settings.origins:
        return guard
    return CORSMiddleware(guard, settings.origins, allow_methods=["*"], allow_headers=["*"])


def _routes(host: ModelHost) -> list[Route]:
    return [
        *status_routes.routes(host),
        *token_routes.routes(host),
        *api_routes(host),
        live_experts_route(host),
        *page_routes(),
    ]


def api_routes(host: ModelHost) -> list[Route]:
    """Returns the routes of all APIs for existing clients."""
    chats = ChatModels(host)
    return [*openai_routes.routes(host, chats), *anthropic_routes.routes(host, chats)]


def _route_of(routes: Sequence[Route], scope: Scope) -> str:
    """Returns the declared path; clients' own paths would make endless metric labels."""
    if scope["path"].startswith(PAGE_FOLDER):
        return PAGE_FOLDER
    found = (route for route in routes if route.matches(scope)[0] is not Match.NONE)
    return next((route.path for route in found), "other")


def _refuse(request: Request, error: Exception) -> Response:
    """Answers a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} {path[:200]}: {error.detail}"
    return error_response(path, ApiError(error.status_code, message, headers=error.headers))


def _fail(request: Request, error: Exception) -> Response:
    """Answers an error in the form of its API; Starlette raises it again, and the guard logs it."""
    return error_response(request.url.path, error)
