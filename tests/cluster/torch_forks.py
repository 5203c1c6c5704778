"""Processes that begin with torch and sharpi imported, which takes each two seconds otherwise.

They leave out only the destructors of libraries that were loaded before the fork: torch's take
apart all its operators, in a third of a second. What torchrun starts, and what `sharpi join` starts
again, are whole interpreters.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import network_namespace
from program_forks import ForkServer, ProgramFork, serve

# Importing them reads no SHARPI_* variable, opens no library of sharpi and starts no thread. None
# imports `sharpi.engine.loader`: before it is imported, an emulated rank replaces what it imports.
_MODULES = (
    "torch.distributed",
    "sharpi.cli.main",
    "sharpi.cli.commands.server",
    "sharpi.cli.commands.run",
    "sharpi.constraints.grammars",
    "sharpi.engine.engine",
    "sharpi.engine.cluster.cluster_loader",
)


class TorchFork(ProgramFork):
    """`python -m MODULE ARGUMENTS...` in a process that begins with torch and sharpi imported.

    It is in the network namespace that is named, if one is.
    """

    def __init__(self, command: Sequence[str], namespace: str | None = None, **others: Any) -> None:
        super().__init__(_server(), command, {"namespace": namespace}, **others)


@cache
def _server() -> ForkServer:
    return ForkServer(Path(__file__))


def _begin(program: dict[str, Any]) -> None:
    if program["namespace"] is not None:
        network_namespace.enter(program["namespace"])
    _measure_briefly()
    _skip_destructors()


def _skip_destructors() -> None:
    """Makes this process end without the destructors of the libraries that are loaded by now."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # it is called with the exit status


def _measure_briefly() -> None:
    """Makes each rank read a quarter of the usual memory to learn its rate, in less time."""
    from sharpi.engine.cluster import agreement
    from sharpi.ops.cpu import machine_limits

    machine_limits.SECONDS_A_READ /= 5
    machine_limits.LEAST_BYTES_A_TRY //= 4
    agreement._SAMPLE_BYTES //= 4


if __name__ == "__main__":
    serve(_MODULES, ("run", "join", "serve", "logits"), _begin)
