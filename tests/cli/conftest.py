"""Running the command line inside a test, against an engine without a model."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fake_engine import FakeEngine, loader_module

from sharpi.cli.main import main


@dataclass
class Result:
    exit_code: int
    out: str
    err: str


class CommandLine:
    """`sharpi ARGS` with what it printed; stdin is a pipe with the given bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        self._capfd.readouterr()
        exit_code = main(list(arguments))
        captured = self._capfd.readouterr()
        return Result(exit_code, captured.out, captured.err)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No SHARPI_* variable of the developer's reaches a test, and help has one width."""
    for name in [each for each in os.environ if each.startswith("SHARPI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True, scope="session")
def heeds_ctrl_c() -> Iterator[None]:
    """A shell starts jobs in the background deaf to Ctrl-C, and children inherit that."""
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
