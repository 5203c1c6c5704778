"""A headless browser, a server with scripted answers, and its page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tab import BrowserTab, Screen
from scripted_server import RunningServer, ScriptedServer

_TAB = BrowserTab()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the browser with the last test of this folder.

    Its driver keeps an event loop running in the thread, so it ends before other tests need one.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path.parent != Path(__file__).parent:
            _TAB.close()


@pytest.fixture(scope="module")
def browser(running_server: ScriptedServer) -> BrowserTab:
    """Chromium, driven by playwright; tests without either are skipped and counted."""
    _TAB.start(running_server.url)
    return _TAB


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
def screen(request: pytest.FixtureRequest) -> Screen:
    """The test's screen; parametrise it indirectly for another."""
    return getattr(request, "param", Screen())


@pytest.fixture
def blank_page(browser: BrowserTab, server: ScriptedServer, screen: Screen) -> Iterator[Any]:
    """A page of the server's origin that shows nothing; go to the server's URL to load the chat.

    A test fails if a script fails or the page's security policy is violated.
    """
    browser.become_new(screen)
    yield browser.page
    browser.rest()
    assert not browser.faults


@pytest.fixture
def page(blank_page: Any, server: ScriptedServer) -> Any:
    """Loads the page."""
    blank_page.goto(server.url)
    return blank_page


@pytest.fixture
def say(page: Any) -> Any:
    """Writes a message and sends it with the Enter key."""

    def write(text: str) -> None:
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")

    return write
