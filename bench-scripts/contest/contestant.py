"""Contestant: a program that computes token ids, in a process of its own that waits its turn.

The worker scripts answer each JSON line on stdin with one on stdout: first the settings, then
turns. While it waits, a worker sleeps on its stdin and takes no time from the others.
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
    """The settings that a worker starts with; `variant` and `options` are for the worker."""

    model: str
    num_threads: int
    context_size: int
    batch_size: int
    variant: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """Token ids to compute in passes of `pass_size`."""

    before: list[int]  # computed first and not timed
    ids: list[int]
    pass_size: int


@dataclass(frozen=True)
class Timing:
    """A turn's times by the worker's own clock."""

    seconds: float
    pass_seconds: list[float]
    counts: dict[str, float]  # increases during the turn, by name


class Contestant:
    """One worker process; `description` is its own description of the program.

    `launcher` is a command that runs the command in its further arguments.
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
        self.description = self._ask(asdict(settings))

    def play(self, turn: Turn) -> Timing:
        """Computes the turn and returns its timing."""
        return Timing(**self._ask(asdict(turn)))

    def seconds(self, turn: Turn) -> float:
        """Computes the turn and returns its seconds."""
        return self.play(turn).seconds

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"{self.name}: the worker is gone") from None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name}: the worker ended ({self._end()})")
        return dict(json.loads(answer))

    def _end(self) -> str:
        code = self._process.wait()
        return "killed, as when memory runs out" if code == -signal.SIGKILL else f"code {code}"

    def close(self) -> None:
        """Ends the worker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def close_all(contestants: Sequence[Contestant]) -> None:
    """Ends all workers."""
    for contestant in contestants:
        contestant.close()
