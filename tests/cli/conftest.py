"""The command line against an engine without a model."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine, loader_module


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the developer's SHARPI_* variables, and gives the help a fixed width."""
    for name in [each for each in os.environ if each.startswith("SHARPI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True, scope="session")
def heeds_ctrl_c() -> Iterator[None]:
    """Restores Ctrl-C, which background jobs of a shell ignore, as their children do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def sharpi(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setitem(sys.modules, "sharpi.engine.loader", loader_module(fake))
    return fake
