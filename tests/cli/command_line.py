"""Running the command line inside a test."""

import io
import sys
from dataclasses import dataclass

import pytest

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
