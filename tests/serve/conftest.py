"""A server with a scripted model, its real clients, and servers of the demo model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from api_server import served
from clients import anthropic, openai
from scripted_host import ScriptedHost
from served_demo import ServedDemo
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from sharpi.serve.app import api_endpoints
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits
from sharpi.serve.http.endpoint import EndpointTable
from sharpi.serve.http.errors import error_response
from sharpi.serve.http.request_guard import RequestGuard


def _fail(request: Request, error: Exception) -> Response:
    return error_response(request.url.path, error)


@pytest.fixture(scope="session")
def scripted_server() -> Iterator[tuple[ScriptedHost, str]]:
    """Yields the host and the URL of its server."""
    host = ScriptedHost()
    model_host = cast(Any, host)
    table = EndpointTable(api_endpoints(model_host, ChatModels(model_host)))
    app = Starlette(routes=table.routes, exception_handlers={Exception: _fail})
    gate = RequestGuard(app, Access(), RequestLimits(), lambda *_: None, print)
    with served(gate) as url:
        yield host, url


@pytest.fixture
def host(scripted_server: tuple[ScriptedHost, str]) -> ScriptedHost:
    scripted_server[0].reset()
    return scripted_server[0]


@pytest.fixture
def url(scripted_server: tuple[ScriptedHost, str]) -> str:
    return scripted_server[1]


@pytest.fixture(scope="session")
def client(scripted_server: tuple[ScriptedHost, str]) -> Iterator[openai.OpenAI]:
    url = f"{scripted_server[1]}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def claude(scripted_server: tuple[ScriptedHost, str]) -> Iterator[anthropic.Anthropic]:
    url = scripted_server[1]
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def http(scripted_server: tuple[ScriptedHost, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted_server[1], timeout=60) as made:
        yield made


@pytest.fixture(autouse=True)
def own_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Separates the servers of the tests from those of the developer."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def demo() -> Iterator[ServedDemo]:
    """A shared server for four answers at once, without a key; tests leave it unchanged."""
    server = ServedDemo()
    yield server
    server.stop()


@pytest.fixture
def serve_demo() -> Iterator[Callable[..., ServedDemo]]:
    servers: list[ServedDemo] = []

    def start(**settings: Any) -> ServedDemo:
        servers.append(ServedDemo(**settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
