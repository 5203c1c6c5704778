"""Processes that begin with modules imported, which take each of them long otherwise.

A server that has imported the modules forks for each program: the program gets arguments,
environment and standard streams of its own, and ends as an interpreter does.
"""

import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_TESTS = str(Path(__file__).parent)  # has this module, which the scripts of servers import
_SET_CHILD_SUBREAPER = 36  # of prctl
_MOST_BYTES = 1 << 17  # of a request


class ForkServer:
    """The process that forks; it ends when this one does.

    `script` is run with a socket's number as its argument; it calls `serve`.
    """

    def __init__(self, script: Path, environment: Mapping[str, str] | None = None) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(other.fileno())],
            cwd=_ROOT,
            env={**(os.environ if environment is None else environment), "PYTHONPATH": _TESTS},
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


class ProgramFork(subprocess.Popen[Any]):
    """`python ARGUMENTS...` in a process that begins as a server's fork.

    The command is that of Popen; its interpreter is this one. The program becomes a child of this
    process. `details` reach the program as they are.
    """

    def __init__(
        self, server: ForkServer, command: Sequence[str], details: Mapping[str, Any], **others: Any
    ) -> None:
        self._server, self._details = server, dict(details)
        super().__init__(command, **others)

    def _execute_child(self, args: Any, *others: Any) -> None:
        """Starts the program where Popen would start it; called by its constructor alone."""
        cwd, env, pipes = others[4], others[5], others[9:15]
        program = self._details | {"arguments": list(args)[1:], "cwd": str(cwd)}
        program |= {"environment": dict(env)}
        self.pid = self._server.start(program, (pipes[0], pipes[3], pipes[5]))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _adopt_orphans(does: bool) -> None:
    """Sets whether this process becomes the parent of its orphaned descendants."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(does), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def serve(
    modules: Sequence[str], commands: Sequence[str], begin: Callable[[dict[str, Any]], None]
) -> None:
    """Imports modules, builds sharpi's commands and forks until the socket's other end closes.

    A fork calls `begin` with its program, which has the details that it was given, and runs it.
    """
    _prepare(modules, commands)
    program = _program_to_become()
    if program is not None:
        begin(program)
        _become(program)


def _prepare(modules: Sequence[str], commands: Sequence[str]) -> None:
    """Imports modules and builds sharpi's commands; the collector then leaves them alone.

    So forks share their memory. A program that needs a module which is not installed says so.
    """
    sys.path[0] = str(_ROOT)
    for each in modules:
        with suppress(ImportError):
            import_module(each)
    _build(commands)
    gc.collect()
    gc.freeze()


def _build(commands: Sequence[str]) -> None:
    """Builds commands, whose form is the same in every program."""
    from sharpi.cli.program import load_command

    for each in commands:
        load_command(each)


def _program_to_become() -> dict[str, Any] | None:
    """Serves the socket of the command line; returns a fork's program, and None at the end."""
    requests = socket.socket(fileno=int(sys.argv[1]))
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
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        text = {"encoding": before.encoding, "errors": before.errors, "closefd": False}
        text["buffering"] = 1 if name == "stderr" else -1
        stream = open(number, "w" if number else "r", **text)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def own_terminal() -> None:
    """Makes stdin the controlling terminal of a new session, so that Ctrl-C becomes SIGINT."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _become(program: dict[str, Any]) -> None:
    """Runs the program's module, code or script as an interpreter would that had just begun.

    It heeds SIGINT, also where a shell runs the tests in the background, who then ignore it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(program["cwd"])
    language = {k: v for k, v in os.environ.items() if k == "LC_CTYPE"}  # set by the interpreter
    os.environ.clear()
    os.environ.update(language | program["environment"])
    first, *arguments = program["arguments"]
    if first == "-m":
        sys.argv, sys.path[0] = arguments, str(Path.cwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = [first, *arguments[1:]], str(Path.cwd())
        exec(arguments[0], {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [first, *arguments], str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")
