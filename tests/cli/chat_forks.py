"""Chats with the fake engine that begin with their modules imported."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(1, str(Path(__file__).parents[1]))

from program_forks import (
    ForkServer,
    ProgramFork,
    become,
    own_terminal,
    prepare,
    program_to_become,
)

# Importing them reads no variable of the environment. Readline is not among them: it reads TERM.
_MODULES = (
    "sharpi.cli.main",
    "sharpi.cli.chat.chat",
    "sharpi.cli.chat.line_input",
    "sharpi.cli.chat.open_input",
    "sharpi.cli.chat.resumed",
    "sharpi.cli.chat.slash_commands",
    "sharpi.cli.chat.terminal_input",
    "sharpi.cli.commands.talk.chat",
    "sharpi.cli.commands.talk.run",
    "sharpi.cli.log.log_store",
    "sharpi.dialogue.channel_splitter",
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
    prepare(_MODULES, ("chat", "run"))
    asked = program_to_become()
    if asked is not None:
        own_terminal()
        become(asked)
