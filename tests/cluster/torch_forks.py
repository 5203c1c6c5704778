"""Processes that begin with torch imported, which takes each of them two seconds otherwise.

A server that has imported torch, and nothing of sharpi, forks for each program: the program gets
arguments, environment and standard streams of its own, and ends as an interpreter does.
"""

import ctypes
import json
import os
import runpy
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_SET_CHILD_SUBREAPER = 36  # of prctl
_MOST_BYTES = 1 << 17  # of a request


class TorchFork(subprocess.Popen[str]):
    """`python -m MODULE ARGUMENTS...` in a process that was forked with torch imported.

    The command is that of Popen; its interpreter is this one. It becomes a child of this process.
    """

    def _execute_child(self, args: Any, *others: Any) -> None:
        """Starts the program where Popen would start it; called by its constructor alone."""
        cwd, env, pipes = others[4], others[5], others[9:15]
        program = {"arguments": list(args)[2:], "cwd": str(cwd), "environment": dict(env)}
        self.pid = _server().start(program, (pipes[0], pipes[3], pipes[5]))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class TorchServer:
    """The process that forks; it ends when this one does."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())], pass_fds=[other.fileno()]
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
    os.chdir(program["cwd"])
    os.environ.clear()
    os.environ.update(program["environment"])
    module, *arguments = program["arguments"]
    sys.argv = [module, *arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    import torch.distributed  # noqa: F401

    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
