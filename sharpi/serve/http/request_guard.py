"""RequestGuard: ASGI middleware that checks every request and handles its errors.

It checks framing and access, limits the body and monitors the connection. It turns an exception
into an error response in the form of the request's API.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from starlette.types import ASGIApp, Receive, Scope, Send

from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import (
    LAST,
    BodyReader,
    ClientConnection,
    ClientDisconnected,
    RequestLimits,
)
from sharpi.serve.http.errors import ApiError, as_api_error, error_response, invalid_request

CLIENT_CLOSED = 499  # nginx's status for a client that disconnected before the response
_JSON, _SCHEME = "application/json", "http://"
_MOST_HEADERS = 200  # headers of one request; browsers send about 20
_MOST_HEAD_BYTES = 64 << 10  # bytes of header names, header values and the path

Report = Callable[[Scope, int, float, str], None]


class RequestGuard:
    """ASGI middleware around `app`, which checks requests and handles errors.

    `report` is called with each request's scope, status, seconds and request id, `log` with a line
    about each internal error. `takes_body` returns whether to read a request's body. `admitted`
    counts the request against its client's limit while it is prepared and answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: RequestLimits,
        report: Report,
        log: Callable[[str], None],
        takes_body: Callable[[Scope], bool] = lambda scope: scope["method"] == "POST",
        admitted: Callable[[Scope], AbstractContextManager[None]] = lambda scope: nullcontext(),
    ) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._report, self._log = report, log
        self._takes_body, self._admitted = takes_body, admitted
        self._bodies = BodyReader(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        _to_origin_form(scope)
        connection = ClientConnection(scope, receive, send, self._limits.stall_seconds)
        try:
            await self._pass(connection, receive)
        except ClientDisconnected:
            connection.status = CLIENT_CLOSED
        except Exception as error:
            await self._answer_fault(connection, receive, error)
        finally:
            seconds = time.perf_counter() - start
            self._report(scope, connection.status or CLIENT_CLOSED, seconds, connection.request_id)

    async def _pass(self, connection: ClientConnection, receive: Receive) -> None:
        scope = connection.scope
        _check_head(scope)
        headers = _headers(scope)
        _check_framing(headers)
        self._access.require(scope["path"], headers)
        if not self._takes_body(scope):
            connection.closes = _has_body(headers)
            await connection.run(self._app, b"")
            return
        _check_type(headers)
        async with self._bodies.read(receive, headers) as body:
            with self._admitted(scope):
                await connection.run(self._app, body)

    async def _answer_fault(
        self, connection: ClientConnection, receive: Receive, error: Exception
    ) -> None:
        """Sends an error response, unless a response has already begun; logs internal errors."""
        path = connection.scope["path"]
        fault = as_api_error(error)
        if fault.status == 500:
            self._log(f"{connection.scope['method']} {path!r} failed: {_one_line(error)}")
        if connection.status is None:
            try:
                await error_response(path, fault)(connection.scope, receive, connection.send)
            except ClientDisconnected:
                connection.status = CLIENT_CLOSED


def _to_origin_form(scope: Scope) -> None:
    """Rewrites the request `GET http://host/path` to `GET /path` (RFC 9112, 3.2.2)."""
    if not scope["path"].startswith(_SCHEME):
        return
    host, slash, path = scope["path"].removeprefix(_SCHEME).partition("/")
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    scope["headers"] = [*others, (b"host", host.encode("latin-1", "replace"))]
    scope["path"] = f"{slash}{path}" or "/"
    scope["raw_path"] = scope["path"].encode()


def _check_head(scope: Scope) -> None:
    """Raises ApiError for HTTP versions other than 1.0 and 1.1, and for excessive headers."""
    version = scope.get("http_version", "1.1")
    if version not in ("1.0", "1.1"):
        message = f"HTTP/{version} is not supported; use HTTP/1.1"
        raise ApiError(505, message, "http_version", headers=LAST)
    if (num := len(scope["headers"])) > _MOST_HEADERS:
        message = f"the request has {num} headers; the limit is {_MOST_HEADERS}"
        raise ApiError(431, message, "too_many_headers", headers=LAST)
    num = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    num += sum(len(name) + len(value) for name, value in scope["headers"])
    if num > _MOST_HEAD_BYTES:
        message = f"the request's head has {num} bytes; the limit is {_MOST_HEAD_BYTES}"
        raise ApiError(431, message, "head_too_large", headers=LAST)


def _check_framing(headers: Mapping[str, str]) -> None:
    """Refuses both lengths in one request, which allow request smuggling (RFC 9112, 6.1)."""
    if "content-length" in headers and "transfer-encoding" in headers:
        message = "a request has either Content-Length or Transfer-Encoding"
        raise ApiError(400, message, "ambiguous_length", headers=LAST)


def _check_type(headers: Mapping[str, str]) -> None:
    """Refuses types that any web page can send; only programs may leave the type out."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind and "origin" not in headers:
        return
    if kind != _JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        message = f"the body must be {_JSON}, not {kind[:60] or 'without a type'!r}"
        raise ApiError(415, message, "unsupported_media_type", headers=LAST)


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _headers(scope: Scope) -> dict[str, str]:
    """Returns the headers with names in lower case; the last header of each name is used."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in ("host", "origin") and headers.get(name, value) != value:
            raise invalid_request(f"the request has two values of {name.title()}")
        headers[name] = value
    return headers


def _one_line(error: Exception) -> str:
    """Returns a line with the exception, its message, and the source line that raised it."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
