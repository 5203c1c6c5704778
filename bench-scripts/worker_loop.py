"""What every worker does: settings in, turns in, seconds out, one JSON line each."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol


class Player(Protocol):
    """A loaded model that a worker plays turns with."""

    description: dict[str, Any]

    def compute(self, ids: list[int]) -> None:
        """One pass over the next ids, finished when it returns."""

    def truncate(self, length: int) -> None:
        """Forgets all positions from `length` on."""


def play(load: Callable[[dict[str, Any]], Player]) -> None:
    """Answers until stdin ends. Whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    player = load(json.loads(sys.stdin.readline()))
    print(json.dumps(player.description), file=answers, flush=True)
    for line in sys.stdin:
        seconds = _timed(player, **json.loads(line))
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)


def _timed(player: Player, before: list[int], ids: list[int], pass_size: int) -> float:
    _compute(player, before, 512)
    start = time.perf_counter()
    _compute(player, ids, pass_size)
    seconds = time.perf_counter() - start
    player.truncate(0)
    return seconds


def _compute(player: Player, ids: list[int], pass_size: int) -> None:
    for start in range(0, len(ids), pass_size):
        player.compute(ids[start : start + pass_size])
