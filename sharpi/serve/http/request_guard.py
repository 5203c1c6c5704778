"""RequestGuard: the checks around every request and response.

It checks access, limits the body and watches the connection. It also confines a failure to its own
request, and reports it to the client in the form of its API.
"""

import time
from collections.abc import Callable

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import ClientConnection
from sharpi.serve.http.errors import as_api_error, error_response
from sharpi.serve.http.request_body import ClientGone, read_body

CLIENT_CLOSED = 499  # nginx's status of a client that disconnected before its response

Report = Callable[[Scope, int, float], None]


class RequestLimits(Struct, frozen=True):
    """Limits the size and the time of a request."""

    max_body_bytes: int = 32 << 20
    patience_seconds: float = 30.0  # for each part of the body to arrive
    stall_seconds: float = 60.0  # for a client to take each message


class RequestGuard:
    """ASGI middleware around `app`.

    `report` gets each request with its status and seconds, `tell` gets a line about each internal
    error.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: RequestLimits,
        report: Report,
        tell: Callable[[str], None],
    ) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._report, self._tell = report, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        connection = ClientConnection(scope, receive, send, self._limits.stall_seconds)
        try:
            await self._pass(connection, receive)
        except ClientGone:
            connection.status = CLIENT_CLOSED
        except Exception as error:
            await self._answer_fault(connection, receive, error)
        finally:
            self._report(scope, connection.status or CLIENT_CLOSED, time.perf_counter() - start)

    async def _pass(self, connection: ClientConnection, receive: Receive) -> None:
        headers = _headers(connection.scope)
        self._access.require(connection.scope["path"], headers)
        limits = self._limits
        body = await read_body(receive, headers, limits.max_body_bytes, limits.patience_seconds)
        await connection.run(self._app, body)

    async def _answer_fault(
        self, connection: ClientConnection, receive: Receive, error: Exception
    ) -> None:
        """Sends an error response; if a response has begun already, the connection just closes."""
        path = connection.scope["path"]
        fault = as_api_error(error)
        if fault.status == 500:
            self._tell(f"{connection.scope['method']} {path!r} failed: {_one_line(error)}")
        if connection.status is None:
            try:
                await error_response(path, fault)(connection.scope, receive, connection.send)
            except ClientGone:
                connection.status = CLIENT_CLOSED


def _headers(scope: Scope) -> dict[str, str]:
    """Returns the headers with names in lower case; the last of each name counts."""
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }


def _one_line(error: Exception) -> str:
    """Returns the exception and the line that raised it."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
