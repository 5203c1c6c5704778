"""Processes that begin with torch and sharpi imported, which takes each two seconds otherwise.

A server that has imported both forks for each program: the program gets arguments, environment and
standard streams of its own, and ends as an interpreter does. It leaves out only the destructors of
libraries that were loaded before the fork: torch's take apart all its operators, in a third of a
second. What torchrun starts, and what `sharpi join` starts again, are whole interpreters.
"""

import ctypes
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import network_namespace

_ROOT = Path(__file__).parents[2]
_SET_CHILD_SUBREAPER = 36  # of prctl
_MOST_BYTES = 1 << 17  # of a request
# Importing them reads no SHARPI_* variable, opens no library of sharpi and starts no thread. None
# imports `sharpi.engine.loader`: before it is imported, an emulated rank replaces what it imports.
_MODULES = (
    "torch.distributed",
    "sharpi.cli.main",
    "sharpi.cli.commands.talk.run",
    "sharpi.engine.engine",
    "sharpi.engine.cluster.cluster_loader",
)


class TorchFork(subprocess.Popen[str]):
    """`python -m MODULE ARGUMENTS...` in a process that begins with torch and sharpi imported.

    The command is that of Popen; its interpreter is this one. It becomes a child of this process,
    in the network namespace that is named, if one is.
    """

    def __init__(self, command: Sequence[str], namespace: str | None = None, **others: Any) -> None:
        self._namespace = namespace
        super().__init__(command, **others)

    def _execute_child(self, args: Any, *others: Any) -> None:
        """Starts the program where Popen would start it; called by its constructor alone."""
        cwd, env, pipes = others[4], others[5], others[9:15]
        program: dict[str, Any] = {"arguments": list(args)[2:], "cwd": str(cwd)}
        program |= {"environment": dict(env), "namespace": self._namespace}
        self.pid = _server().start(program, (pipes[0], pipes[3], pipes[5]))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class TorchServer:
    """The process that forks; it ends when this one does."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())],
            cwd=_ROOT,
            pass_fds=[other.fileno()],
        )
        other.close()

    def start(self, program: dict[str, Any], streams: tuple[int, int, int]) -> int:
        """Starts a program with standard input, output and error; returns its process id."""
        _adopt_orphans(True)
        try:
            socket.send_fds(self._socket, [json.dumps(program).encode()], streams)
            return int(self._socket.recv(64))
        finally:
            _adopt_orphans(False)


@cache
def _server() -> TorchServer:
    return TorchServer()


def _adopt_orphans(does: bool) -> None:
    """Sets whether this process becomes the parent of its orphaned descendants."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(does), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks for each request; returns its program in the fork, and None at the end."""
    while True:
        data, streams, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not data:
            return None
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            program = os.fork()
            if not program:
                for each in (reading, writing, requests.detach()):
                    os.close(each)
                _take_streams(streams)
                return dict(json.loads(data))
            os.write(writing, str(program).encode())
            os._exit(0)
        # From here on the program is an orphan, whom the test's process adopts.
        os.waitpid(between, 0)
        requests.send(os.read(reading, 64))
        for each in (reading, writing, *streams):
            os.close(each)


def _take_streams(streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def become(program: dict[str, Any]) -> None:
    """Runs the program's module as an interpreter would that had just begun."""
    if program["namespace"] is not None:
        network_namespace.enter(program["namespace"])
    os.chdir(program["cwd"])
    os.environ.clear()
    os.environ.update(program["environment"])
    module, *arguments = program["arguments"]
    sys.argv = [module, *arguments]
    sys.path[0] = str(Path.cwd())
    _skip_destructors()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _skip_destructors() -> None:
    """Makes this process end without the destructors of the libraries that are loaded by now."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # it is called with the exit status


def import_all() -> None:
    """Imports what programs need; the collector then leaves it alone, so forks share its memory."""
    sys.path[0] = str(_ROOT)
    for each in _MODULES:
        import_module(each)
    _measure_briefly()
    gc.collect()
    gc.freeze()


def _measure_briefly() -> None:
    """Makes each rank read memory for a fifth of the usual time to learn its rate."""
    from sharpi.ops.cpu import machine_limits

    machine_limits.SECONDS_A_READ /= 5


if __name__ == "__main__":
    import_all()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
