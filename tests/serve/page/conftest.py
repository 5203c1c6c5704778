"""A headless browser, a server with scripted answers, and its page."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_server import RunningServer, ScriptedServer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright; tests without either are skipped and counted.

    Its driver keeps an event loop running in the thread, so it ends before other tests need one.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("Chromium is not installed")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def running_server() -> Iterator[ScriptedServer]:
    with RunningServer(ScriptedServer()) as server:
        yield server


@pytest.fixture
def server(running_server: ScriptedServer) -> ScriptedServer:
    """Resets the server to its initial state."""
    running_server.reset()
    return running_server


@pytest.fixture
def screen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The test's screen; parametrise it indirectly for another."""
    return getattr(request, "param", {"viewport": {"width": 1280, "height": 800}})


@pytest.fixture
def page(browser: Any, server: ScriptedServer, screen: dict[str, Any]) -> Iterator[Any]:
    """Loads the page; a test fails if a script fails or its security policy is violated."""
    context = browser.new_context(**screen)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if "Policy" in line.text else None)
    page.goto(server.url)
    yield page
    context.close()
    assert not faults


@pytest.fixture
def say(page: Any) -> Any:
    """Writes a message and sends it with the Enter key."""

    def write(text: str) -> None:
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")

    return write
