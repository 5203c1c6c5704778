"""Contestant: a program that computes token ids, in a process of its own that waits its turn.

The worker scripts answer one JSON line on stdout for each on stdin: first the settings, then turns.
While it waits, a worker sleeps on its stdin and takes no time from the others.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Settings:
    """What a worker is started with; `variant` is for the worker to read."""

    model: str
    num_threads: int
    context_size: int
    batch_size: int
    variant: str = ""


@dataclass(frozen=True)
class Turn:
    """`ids` computed in passes of `pass_size`; `before`, already in the KV cache, is not timed."""

    before: list[int]
    ids: list[int]
    pass_size: int


class Contestant:
    """One worker process; `description` is what it says of itself."""

    def __init__(self, name: str, python: str, worker: str, settings: Settings) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, str(_FOLDER / worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.description = self._ask(asdict(settings))

    def seconds(self, turn: Turn) -> float:
        """How long the turn took, as the worker's own clock says."""
        return float(self._ask(asdict(turn))["seconds"])

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
            raise SystemExit(f"{self.name}: the worker ended (code {self._process.wait()})")
        return dict(json.loads(answer))

    def close(self) -> None:
        """Ends the worker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def close_all(contestants: Sequence[Contestant]) -> None:
    """Ends them all."""
    for contestant in contestants:
        contestant.close()
