"""Chats with the fake engine that begin with their modules imported."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from program_forks import ForkServer, ProgramFork, own_terminal, serve

# Importing them reads no variable of the environment.
_MODULES = (
    "sharpi.cli.main",
    "sharpi.cli.chat.chat",
    "sharpi.cli.chat.line_input",
    "sharpi.cli.commands.chat",
    "sharpi.cli.log.conversation_log",
    "sharpi.cli.chat.slash_commands",
    "sharpi.cli.chat.terminal_input",
    "sharpi.cli.commands.run",
    "sharpi.cli.log.log_store",
    "sharpi.dialogue.formats.harmony",
    "sharpi.tokenizer.stream",
    "prompt_toolkit.input.vt100",
    "pygments.lexers.python",
    "pygments.styles.monokai",
    "rich.live",
    "rich.markdown",
)


class ChatFork(ProgramFork):
    """`python fake_engine.py ARGUMENTS...` with its stdin as its terminal."""

    def __init__(self, command: Sequence[str], **others: Any) -> None:
        super().__init__(_server(), command, {}, **others)


@cache
def _server() -> ForkServer:
    return ForkServer(Path(__file__), {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"})


if __name__ == "__main__":
    serve(_MODULES, ("chat", "run"), lambda _: own_terminal())
