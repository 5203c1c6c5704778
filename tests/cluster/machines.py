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

    `namespaces` are the names of network namespaces: of the first machine, and of the others.
    """

    def __init__(
        self,
        model: Path | None = None,
        address: str = "127.0.0.1",
        namespaces: Sequence[str | None] = (None, None),
    ) -> None:
        self.model, self.port = model or demo_model(), free_port()
        self._address, self._namespaces = address, namespaces
        self._processes: list[Process] = []

    @property
    def first(self) -> str:
        return f"{self._address}:{self.port}"

    def start(
        self,
        *arguments: str,
        module: str = "sharpi",
        machine: int = 0,
        stdin: int = subprocess.DEVNULL,
        variables: Mapping[str, str] = {},
    ) -> Process:
        """Starts a module's program on the first machine, or on another one."""
        process = TorchFork(
            [sys.executable, "-m", module, *arguments],
            self._namespaces[machine],
            cwd=ROOT,
            env={**_environment(), **variables},
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._processes.append(process)
        return process

    def join(self, model: Path | None = None, *arguments: str) -> Process:
        command = ["join", self.first, str(model or self.model), "--once", *arguments]
        return self.start(*command, machine=1)

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


def _environment() -> dict[str, str]:
    """Returns the environment without the developer's settings, except the library under test."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARPI_")}
    library = os.environ.get("SHARPI_NATIVE_LIBRARY")
    return environment | ({"SHARPI_NATIVE_LIBRARY": library} if library else {})


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
