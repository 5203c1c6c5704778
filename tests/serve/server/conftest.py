"""Servers for tests: one that is shared, and others to be made as a test needs them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served_demo import ServedDemo


@pytest.fixture(autouse=True)
def own_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No server of the developer's is found, and none of the tests' by the developer."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def demo() -> Iterator[ServedDemo]:
    """Four answers at once, no key; to be left as it was found."""
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
