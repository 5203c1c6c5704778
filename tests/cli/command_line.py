"""Running the command line inside a test."""

import io
import sys
from dataclasses import dataclass
from functools import cache

import pytest

from sharpi.cli import main as main_module
from sharpi.cli import misspelt_variables
from sharpi.cli.main import main

# Click's form of a command is the same in every run, and takes half of the time of a short one.
load_command = cache(misspelt_variables.load_command)


@dataclass
class Result:
    exit_code: int
    out: str
    err: str


class CommandLine:
    """`sharpi ARGS` with what it printed; stdin is a pipe with the given bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd
        for module in (main_module, misspelt_variables):
            monkeypatch.setattr(module, "load_command", load_command)

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        self._capfd.readouterr()
        exit_code = main(list(arguments))
        captured = self._capfd.readouterr()
        return Result(exit_code, captured.out, captured.err)
