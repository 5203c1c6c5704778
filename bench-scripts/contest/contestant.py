"""Contestant: a worker process that runs a model with sharpi or llama.cpp, for comparisons.

A worker script replies to each JSON line on stdin with a JSON line on stdout. The first line has
the settings, each further line a `Task`. Between two tasks, the worker blocks on its stdin, so that
it does not disturb other workers.
"""

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Settings:
    """The settings that a worker loads the model with.

    `variant` and `options`: further settings, which the worker script defines.
    """

    model: str
    num_threads: int
    context_size: int
    batch_size: int
    variant: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A timed task for a worker: token ids to compute in passes of `pass_size` tokens."""

    before: list[int]  # token ids that are computed first and not timed
    ids: list[int]
    pass_size: int


@dataclass(frozen=True)
class Timing:
    """A task's times in seconds, as its worker measured them."""

    seconds: float
    pass_seconds: list[float]
    counts: dict[str, float]  # increases during the task, by name


class Contestant:
    """One worker process.

    `description`: the worker's reply to the settings, such as the program's version. `launcher`: a
    command to which the worker's command is appended.
    """

    def __init__(
        self,
        name: str,
        python: str,
        worker: str,
        settings: Settings,
        launcher: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*launcher, python, str(_FOLDER / worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.description = self._request(asdict(settings))

    def run(self, task: Task) -> Timing:
        """Lets the worker run a task; returns the times."""
        return Timing(**self._request(asdict(task)))

    def seconds(self, task: Task) -> float:
        """Lets the worker run a task; returns the seconds of all passes together."""
        return self.run(task).seconds

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"{self.name}: the worker is gone") from None
        reply = self._process.stdout.readline()
        if not reply:
            raise SystemExit(f"{self.name}: the worker ended ({self._end()})")
        return dict(json.loads(reply))

    def _end(self) -> str:
        code = self._process.wait()
        return "killed, as when memory runs out" if code == -signal.SIGKILL else f"code {code}"

    def close(self) -> None:
        """Closes the worker's stdin and waits until the worker ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def close_all(contestants: Sequence[Contestant]) -> None:
    """Ends all worker processes."""
    for contestant in contestants:
        contestant.close()
