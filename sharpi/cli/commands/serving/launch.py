"""`sharpi launch`: starts a server and a program that uses it; stops the server afterwards."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Annotated, Literal

import click

from sharpi.cli.options.inputs.inputs import find_model
from sharpi.cli.options.inputs.source import PullOption
from sharpi.cli.options.option import argument, count, option
from sharpi.cli.output.terminal import print_note
from sharpi.errors import UsageError

ClientName = Literal["claude", "codex", "aider", "opencode"]

_MOST_CONTEXT = 32768  # the default limit; agents send long prompts


def launch(
    context: click.Context,
    client: Annotated[ClientName, argument("CLIENT", "claude, codex, aider or opencode.")],
    model: Annotated[str, argument("MODEL", "A GGUF file or a name, as `sharpi run` takes it.")],
    rest: Annotated[
        list[str] | None, argument("ARGS", "Arguments of the client, after --.")
    ] = None,
    pull: PullOption = False,
    ctx_size: Annotated[
        int | None,
        option(
            "-c --ctx-size",
            "Tokens of context of the server.",
            "N",
            min=1,
            callback=count,
            show_default="the model's, at most 32768",
            is_everyday=True,
        ),
    ] = None,
) -> None:
    """Start a coding agent on a model.

    Serves MODEL on a free port of this machine, runs the client with the variables and arguments
    that make it use that server, and stops the server when the client ends. The exit code is the
    client's. Other flags of the server come from variables, such as SHARPI_RAM=16GiB.
    """
    from sharpi.cli.commands.serving.clients import CLIENTS, MODEL
    from sharpi.cli.commands.serving.server_process import running_server

    chosen = CLIENTS[client]
    program = shutil.which(chosen.program)
    if program is None:
        raise UsageError(f"{chosen.program} is not on PATH; install it with `{chosen.install}`")
    path = find_model(context, model)
    size = ctx_size or _context_size(path)
    print_note(f"loading {path.name} with {size} tokens of context for {client}")
    with running_server(path, MODEL, size) as url:
        variables, arguments = chosen.configure(url)
        code = _run([program, *arguments, *(rest or ())], dict(variables))
    raise click.exceptions.Exit(code)


def _context_size(path: Path) -> int:
    from sharpi.gguf.reader import open_gguf
    from sharpi.gguf.summary import summarise

    with open_gguf(path) as file:
        return min(summarise(file).context_length or _MOST_CONTEXT, _MOST_CONTEXT)


def _run(command: list[str], variables: dict[str, str]) -> int:
    """Runs a program in the terminal and returns its exit code; only the program handles Ctrl-C."""
    before = signal.signal(signal.SIGINT, _ignore)
    try:
        with subprocess.Popen(command, env=os.environ | variables) as client:
            try:
                code = client.wait()
            except BaseException:  # also for SIGTERM, which ends this process
                client.terminate()
                raise
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _ignore(number: int, frame: object) -> None:
    """Handles SIGINT by doing nothing, so that only the client handles Ctrl-C.

    With SIG_IGN instead of a handler, the client would inherit it and ignore Ctrl-C, too.
    """
