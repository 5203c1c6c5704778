"""Errors in the forms of OpenAI and Anthropic."""

import json

import pytest

from sharpi.errors import ContextFullError, ModelFileError, TemplateError, UsageError
from sharpi.serve.http.errors import ApiError, as_api_error, busy, error_response, unknown_model

OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"


def test_openai_form() -> None:
    response = error_response(OPENAI, unknown_model("gpt-9", "mine"))
    error = json.loads(response.body)["error"]
    assert response.status_code == 404
    assert error["type"] == "invalid_request_error"
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "gpt-9" in error["message"]
    assert "mine" in error["message"]


@pytest.mark.parametrize("path", [ANTHROPIC, "/v1/messages/count_tokens"])
def test_anthropic_form(path: str) -> None:
    response = error_response(path, unknown_model("claude", "mine"))
    body = json.loads(response.body)
    assert (response.status_code, body["type"]) == (404, "error")
    assert body["error"]["type"] == "not_found_error"


def test_a_path_that_only_begins_alike_is_openais() -> None:
    assert "type" not in json.loads(error_response("/v1/messagesx", busy(3)).body)


def test_busy_says_when_to_come_back() -> None:
    response = error_response(OPENAI, busy(3))
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert json.loads(response.body)["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextFullError("too long"), 400, "context_length_exceeded"),
        (UsageError("wrong"), 400, None),
        (TemplateError("refused"), 400, None),
        (ModelFileError("gone"), 500, "server_error"),
        (KeyError("secret"), 500, "server_error"),
        (ApiError(418, "tea"), 418, None),
    ],
)
def test_exceptions(error: Exception, status: int, code: str | None) -> None:
    fault = as_api_error(error)
    assert (fault.status, fault.code) == (status, code)


@pytest.mark.parametrize("error", [KeyError("secret"), ModelFileError("/home/secret.gguf: gone")])
def test_what_is_not_the_clients_fault_is_not_told(error: Exception) -> None:
    assert "secret" not in as_api_error(error).message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_types(status: int, kind: str) -> None:
    body = json.loads(error_response(ANTHROPIC, ApiError(status, "x")).body)
    assert body["error"] == {"type": kind, "message": "x"}
