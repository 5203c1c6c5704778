"""ApiError: the error of a refused or failed request, and its JSON in each API.

Paths under /v1/messages and /messages use Anthropic's form, all other paths OpenAI's.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.responses import JSONResponse

from sharpi.errors import BusyError, ContextFullError, GrammarError, TemplateError, UsageError

_ANTHROPIC_PATH = "/messages"  # with or without /v1 before it
RETRY_SECONDS = 1

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_CLIENTS_FAULT = (UsageError, TemplateError, GrammarError)


class ApiError(Exception):
    """An error with an HTTP status and a message for the client.

    `code` and `param` are fields of OpenAI's form, `details` is one of Anthropic's; each may be
    None.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.details = details
        self.headers = dict(headers or {})


def invalid_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """Returns ApiError 400 for an invalid request; `param` is the path of the invalid member."""
    return ApiError(400, message, code, param)


def raise_invalid(path: str, message: str) -> NoReturn:
    """Raises ApiError 400 with the text "'PATH' MESSAGE" for an invalid member."""
    raise invalid_request(f"'{path}' {message}", param=path)


def busy(num_open: int) -> ApiError:
    """Returns ApiError 429: the server has reached its limit of answers."""
    return too_much(f"{num_open} answers are running or waiting, which is the limit")


def too_much(what: str) -> ApiError:
    """Returns ApiError 429, with the reason `what` and a Retry-After header."""
    message = f"{what}; try again later"
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return ApiError(429, message, "rate_limit_exceeded", headers=headers)


def unknown_model(name: str, known: str) -> ApiError:
    """Returns ApiError 404: the server's model is `known`, not `name`."""
    message = f"the model {name[:200]!r} does not exist; this server has {known!r}"
    return ApiError(404, message, "model_not_found", "model")


def unavailable(message: str) -> ApiError:
    """Returns ApiError 503."""
    return ApiError(503, message, "unavailable")


def unreadable_model() -> ApiError:
    """Returns ApiError 503: the model's file was truncated or changed while it was in use."""
    return unavailable("the model's file was changed or cannot be read any more; see the log")


def stopping() -> ApiError:
    """Returns ApiError 503: the server is shutting down."""
    return unavailable("the server is stopping")


def as_api_error(error: Exception) -> ApiError:
    """Converts an exception to an ApiError; details are included only for errors of the client."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        return too_much(str(error))
    if isinstance(error, ContextFullError):
        return invalid_request(str(error), code="context_length_exceeded")
    if isinstance(error, _CLIENTS_FAULT):
        return invalid_request(str(error))
    return ApiError(500, "the server failed to handle this request; see its log", "server_error")


def openai_body(error: ApiError) -> dict[str, Any]:
    """Returns the JSON of an error in OpenAI's form."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = _OPENAI_TYPES.get(error.status, fallback)
    fields = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": fields}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """Returns the JSON of an error in Anthropic's form."""
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status, fallback)
    fields: dict[str, Any] = {"type": kind, "message": error.message}
    if error.details is not None:
        fields["details"] = dict(error.details)
    return {"type": "error", "error": fields}


def error_body(path: str, error: ApiError) -> dict[str, Any]:
    """Returns the JSON of an error in the form of the API that `path` belongs to."""
    is_anthropic = f"{path.removeprefix('/v1')}/".startswith(f"{_ANTHROPIC_PATH}/")
    return anthropic_body(error) if is_anthropic else openai_body(error)


def error_response(path: str, error: Exception) -> JSONResponse:
    """Returns the JSON response for a failed request, in the form of the path's API."""
    fault = as_api_error(error)
    return JSONResponse(error_body(path, fault), fault.status, fault.headers)
