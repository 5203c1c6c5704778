"""ForkedChildren: child processes for costly grammars that begin with their modules loaded.

A child of `run_child` takes most of its time to start Python and to import llguidance. A process
that has done so once forks for each text. What the child then runs is the same, with its limits.
"""

import importlib
import io
import json
import os
import subprocess
import sys
from typing import Any

from sharpi.constraints import trial

CPU_SECONDS = 1  # half of what others have, which a grammar that is refused for it uses up


class ForkedChildren:
    """Stands in for `run_child`; one thread may use it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def run(self, module: str, text: str) -> Any:
        """Returns the result of `module`, which is the trial, or None if it exceeds its limits."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the process that forks."""
        self._process.communicate()


def _fork_for_each_line() -> None:
    importlib.import_module("llguidance")
    trial.CPU_SECONDS = CPU_SECONDS
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
        if os.waitpid(child, 0)[1]:
            print("null", flush=True)


def _run(text: str) -> None:
    """Does what the module does when it is run, with `text` as its input, and ends the process."""
    status = 1
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
        trial.serve_parent(trial._error_of)
        sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    _fork_for_each_line()
