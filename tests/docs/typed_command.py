"""`sharpi ARGUMENTS` as a shell starts it, with its modules imported already."""

import io
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from program_forks import ForkServer, ProgramFork, serve

_OF_A_SHELL = set("~$|<>&*`")
# Importing them reads no variable of the environment, opens no library and starts no thread.
_MODULES = ("sharpi.cli.main", "sharpi.cli.start", "sharpi.engine.loader")
_COMMANDS = ("run", "chat", "plan", "log", "serve")


def arguments_of(command: str) -> list[str] | None:
    """Returns the arguments of a `sharpi` command; None for others, and where a shell is needed."""
    words = shlex.split(command, comments=True)
    is_plain = words[:1] == ["sharpi"] and not _OF_A_SHELL & set(command)
    return words[1:] if is_plain else None


class TypedCommand(ProgramFork):
    """A command in a process of its own, whose output is not buffered."""

    def __init__(self, arguments: Sequence[str], **others: Any) -> None:
        super().__init__(_server(), [sys.executable, "-m", "sharpi", *arguments], {}, **others)


@cache
def _server() -> ForkServer:
    return ForkServer(Path(__file__))


def _begin(_: dict[str, Any]) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        output = open(number, "wb", 0, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(output, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    serve(_MODULES, _COMMANDS, _begin)
