"""BrowserTab: Chromium with one tab, which tests use in turns, each as if it were new."""

import os
import shutil
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 60_000
RESTING = "page/css/base.css"


class Screen(NamedTuple):
    """What shows the page."""

    width: int = 1280
    height: int = 800
    colours: str = "light"
    is_touched: bool = False


class BrowserTab:
    """The browser takes seconds to start and a tab takes one, so all tests share theirs.

    `faults` has what the page's scripts did wrong since the tab became new.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.page: Any = None
        self._open = ExitStack()
        self._resting_url = ""
        self._devtools: Any = None

    def start(self, server_url: str) -> None:
        """Starts the browser unless it runs; skips the test if it or its driver is missing."""
        if self.page is not None:
            return
        playwright = pytest.importorskip(
            "playwright.sync_api", reason="playwright is not installed"
        )
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        if path is None:
            pytest.skip("Chromium is not installed")
        driver = self._open.enter_context(playwright.sync_playwright())
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        self._open.callback(browser.close)
        self._resting_url = server_url + RESTING
        self._open_tab(browser)
        self.rest()

    def _open_tab(self, browser: Any) -> None:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._look)
        self._devtools = context.new_cdp_session(self.page)

    def _look(self, line: Any) -> None:
        if "Policy" in line.text:
            self.faults.append(line.text)

    def rest(self) -> None:
        """Leaves the page for one of the same origin that has no scripts."""
        self.page.goto(self._resting_url)

    def become_new(self, screen: Screen) -> None:
        """Removes what earlier tests have left, and takes the sizes and colours of a screen."""
        self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.context.clear_permissions()
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": screen.width, "height": screen.height})
        self.page.emulate_media(color_scheme=screen.colours)
        touch = {"enabled": screen.is_touched}
        self._devtools.send("Emulation.setTouchEmulationEnabled", touch)
        self.faults.clear()

    def close(self) -> None:
        """Ends the browser, if one runs, and its driver."""
        self.page = self._devtools = None
        self._open.close()
