"""Servers that begin with their modules imported, which takes most of the time that one needs."""

import io
import os
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from program_forks import ForkServer, ProgramFork, serve

_ROOT = Path(__file__).parents[2]
# Importing them reads no SHARPI_* variable, opens no library of sharpi and starts no thread.
_MODULES = (
    "sharpi.cli.commands.server",
    "sharpi.cli.main",
    "sharpi.cli.start",
    "sharpi.engine.loader",
    "sharpi.serve.server_log",
)


class ForkedProgram(ProgramFork):
    """`python -m MODULE ARGUMENTS...` or `python -c CODE`, of this interpreter, in this folder.

    It may open `max_files`.
    """

    def __init__(self, *arguments: str, max_files: int | None = None) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SHARPI_")}
        library = os.environ.get("SHARPI_NATIVE_LIBRARY")
        super().__init__(
            _server(),
            [sys.executable, *arguments],
            {"max_files": max_files},
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | ({"SHARPI_NATIVE_LIBRARY": library} if library else {}),
        )


@cache
def _server() -> ForkServer:
    return ForkServer(Path(__file__))


def _begin(program: dict[str, Any]) -> None:
    sys.stdout = sys.__stdout__ = _unbuffered(1)
    sys.stderr = sys.__stderr__ = _unbuffered(2)
    if program["max_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (program["max_files"],) * 2)


def _unbuffered(number: int) -> io.TextIOWrapper:
    """Opens a stream as PYTHONUNBUFFERED does."""
    return io.TextIOWrapper(open(number, "wb", 0, closefd=False), write_through=True)


if __name__ == "__main__":
    serve(_MODULES, ("serve", "ps"), _begin)
