"""`sharpi join`: runs some layers of a model for the first machine, which receives the requests."""

import os
import subprocess
import sys
import time
from typing import Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.inputs import ModelArgument, ModelOption, PullOption, find_model
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.terminal import print_stderr
from sharpi.cli.run_config import complete
from sharpi.cli.termination import TEMPORARY
from sharpi.errors import ClusterError, LinkError, UsageError
from sharpi.settings import ClusterConfig, RunConfig
from sharpi.settings.cluster import host_and_port
from sharpi.settings.option import Option, Without, local_option
from sharpi.settings.run import CONTEXT

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 8.0  # seconds
_AGAIN = "_SHARPI_JOINS_AGAIN"  # environment variable: _keep_joining started this process


def join(
    context: typer.Context,
    config: Annotated[RunConfig, Without((CONTEXT,))],
    first: Annotated[str, Option("HOST[:PORT]", "The first machine, as its `--hosts` has it.")],
    model: ModelArgument = None,
    model_file: ModelOption = None,
    pull: PullOption = False,
    once: Annotated[
        bool, local_option("--once", "End with the first machine, rather than wait for it again.")
    ] = False,
    only_lend: Annotated[
        bool, local_option("--only-lend", "Run no layers; hold and compute experts for the others.")
    ] = False,
) -> None:
    """Run some layers of a model for another machine.

    That machine runs `sharpi run`, `chat`, `serve`, `bench`, `perplexity` or `logits` with
    `--hosts`. This one needs the same model file, and waits for the next model until Ctrl-C.
    """
    from sharpi.cluster.rendezvous import refuse_unknown_name
    from sharpi.gguf.reader import open_gguf

    path = find_model(context, model)
    config = complete(context, config, path)
    address, port = _address(first)
    # Finds an unusable file before the other machines connect.
    open_gguf(path, allows_missing_parts=True).close()
    if not once:
        refuse_unknown_name(address)
        _keep_joining()
    asked = config.cluster or ClusterConfig()
    config = replace(
        config, cluster=replace(asked, hosts=(), first=address, port=port, only_lends=only_lend)
    )
    try:
        with open_engine(config):
            return
    except ClusterError as error:
        if _AGAIN in os.environ and not isinstance(error, LinkError):
            error.exit_code = TEMPORARY
        raise


def _address(first: str) -> tuple[str, int]:
    try:
        return host_and_port(first)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _keep_joining() -> None:
    """Runs `join --once` in new processes, with which torch's threads end, while that may help."""
    pause = _FIRST_PAUSE / 2
    while True:
        code = _join_once()
        if code > 0 and code != TEMPORARY:
            raise typer.Exit(code)
        print_stderr("waiting for the first machine; Ctrl-C ends this")
        pause = min(2 * pause, _LONGEST_PAUSE) if code == TEMPORARY else _FIRST_PAUSE
        time.sleep(pause)


def _join_once() -> int:
    """Runs this command with --once in a new process, and returns its exit code."""
    command = [sys.executable, "-m", "sharpi", "join", "--once", *sys.argv[2:]]
    return subprocess.run(command, check=False, env=os.environ | {_AGAIN: "1"}).returncode
