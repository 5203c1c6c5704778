"""Machines: the processes of several ranks on this machine, or in namespaces of its network."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from torch_forks import TorchFork

from sharpi.resources import demo_model

ROOT = Path(__file__).parents[2]
PROMPT = ("Once upon a time", "--temp", "0")
FOREVER = ("-n", "1000000", "--ignore-eos", "--context-shift")
SECONDS = 120
Process = subprocess.Popen[str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machines:
    """Starts sharpi's processes, and kills those still running at the end.

    `launchers` are commands that run the command after them: for the first machine, and for the
    others.
    """

    def __init__(
        self,
        model: Path | None = None,
        address: str = "127.0.0.1",
        launchers: Sequence[Sequence[str]] = ((), ()),
    ) -> None:
        self.model, self.port = model or demo_model(), free_port()
        self._address, self._launchers = address, launchers
        self._processes: list[Process] = []

    @property
    def first(self) -> str:
        return f"{self._address}:{self.port}"

    def start(
        self,
        *arguments: str,
        module: str = "sharpi",
        launcher: Sequence[str] | None = None,
        stdin: int = subprocess.DEVNULL,
        variables: Mapping[str, str] = {},
    ) -> Process:
        own = self._launchers[0] if launcher is None else launcher
        command = [*own, sys.executable, "-m", module, *arguments]
        # A launcher runs its command where no process of ours can be forked.
        start = subprocess.Popen if own else TorchFork
        self._processes.append(self._started(start, command, stdin, variables))
        return self._processes[-1]

    def start_python(self, *arguments: str) -> Process:
        """Starts the interpreter on the first machine."""
        command = [sys.executable, *arguments]
        self._processes.append(self._started(subprocess.Popen, command, subprocess.DEVNULL))
        return self._processes[-1]

    def _started(
        self,
        start: type[Process],
        command: list[str],
        stdin: int,
        variables: Mapping[str, str] = {},
    ) -> Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARPI_")}
        library = os.environ.get("SHARPI_NATIVE_LIBRARY")
        environment |= {"SHARPI_NATIVE_LIBRARY": library} if library else {}
        environment |= variables
        pipe = subprocess.PIPE
        return start(
            command, cwd=ROOT, env=environment, text=True, stdin=stdin, stdout=pipe, stderr=pipe
        )

    def join(self, model: Path | None = None, *arguments: str) -> Process:
        command = ["join", self.first, str(model or self.model), "--once", *arguments]
        return self.start(*command, launcher=self._launchers[1])

    def run(self, *arguments: str, others: int = 1) -> Process:
        hosts = ",".join([self.first, *["x"] * others])
        return self.start("run", str(self.model), *arguments, "--hosts", hosts, "--no-log")

    def command(self, name: str, *arguments: str) -> Process:
        """Starts another command on the first machine, with a pipe as its standard input."""
        return self.start(name, str(self.model), *arguments, stdin=subprocess.PIPE)

    def serve(self, port: str, *arguments: str) -> Process:
        hosts = ("--hosts", f"{self.first},x")
        return self.start("serve", str(self.model), "--port", port, *hosts, *arguments)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def ended(
    process: Process, typed: str | None = None, seconds: float = SECONDS
) -> tuple[int, str, str]:
    out, err = process.communicate(typed, timeout=seconds)
    return process.returncode, out, err


def wait_for(url: str, server: Process) -> None:
    """Waits until the server answers."""
    while server.poll() is None:
        try:
            with urlopen(f"{url}/health", timeout=SECONDS):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(server.communicate()[1])


def complete(url: str, max_tokens: int = 8) -> str:
    """The text of a completion, or the status of an error."""
    body = {"prompt": "Once upon a time", "max_tokens": max_tokens, "temperature": 0}
    body |= {"ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urlopen(request, timeout=SECONDS) as response:
            return str(json.load(response)["choices"][0]["text"])
    except OSError as error:
        return str(getattr(error, "code", error))
