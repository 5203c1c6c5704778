"""Runs `sharpi serve` in a child process, on a free port of this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

_READY = "serving "
_STOP_SECONDS = 15.0  # seconds to wait after SIGTERM; the server itself stops sooner
# Settings of the environment that would keep the client from reaching the server.
_DROPPED = ("SHARPI_API_KEY", "SHARPI_HOST", "SHARPI_PORT", "SHARPI_MODEL", "SHARPI_ALIAS")


@contextmanager
def running_server(model: Path, alias: str, context_size: int) -> Iterator[str]:
    """Yields the URL of a server with the model loaded, and stops the server afterwards.

    The server's stderr is that of this process. If the server does not start, raises click's Exit
    with its exit code.
    """
    where = ("--host", "127.0.0.1", "--port", "0", "--alias", alias, "-c", str(context_size))
    with subprocess.Popen(
        [sys.executable, "-m", "sharpi", "serve", str(model), *where],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(os.environ),
        start_new_session=True,  # leaves Ctrl-C to the client
    ) as server:
        try:
            yield _url_of(server)
        finally:
            _stop(server)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in _DROPPED}


def _url_of(server: "subprocess.Popen[str]") -> str:
    """Waits until the model is loaded and returns the URL; raises click's Exit if that fails."""
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith(_READY):
        raise click.exceptions.Exit(server.wait() or 1)
    return line.split()[-1]


def _stop(server: "subprocess.Popen[str]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
