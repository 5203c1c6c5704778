"""The loop of every worker: settings in, turns in, seconds and counts out, one JSON line each."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol


class Player(Protocol):
    """A loaded model that a worker plays turns with."""

    description: dict[str, Any]

    def compute(self, ids: list[int]) -> None:
        """Runs one pass over the next ids and waits until it is finished."""

    def truncate(self, length: int) -> None:
        """Forgets all positions from `length` on."""

    def counts(self) -> dict[str, float]:
        """Returns the program's own counts since its start; may be empty."""


def play(load: Callable[[dict[str, Any]], Player]) -> None:
    """Answers until stdin ends; whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    player = load(json.loads(sys.stdin.readline()))
    print(json.dumps(player.description), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_timed(player, **json.loads(line))), file=answers, flush=True)


def _timed(player: Player, before: list[int], ids: list[int], pass_size: int) -> dict[str, Any]:
    list(_passes(player, before, 512))
    counts, start = _counts(player), time.perf_counter()
    pass_seconds = list(_passes(player, ids, pass_size))
    seconds = time.perf_counter() - start
    grown = {name: value - counts[name] for name, value in _counts(player).items()}
    player.truncate(0)
    return {"seconds": seconds, "pass_seconds": pass_seconds, "counts": grown}


def _passes(player: Player, ids: list[int], pass_size: int) -> Iterator[float]:
    """Computes the ids, and yields each pass's seconds."""
    for begin in range(0, len(ids), pass_size):
        start = time.perf_counter()
        player.compute(ids[begin : begin + pass_size])
        yield time.perf_counter() - start


def _counts(player: Player) -> dict[str, float]:
    """Returns the player's counts, and the bytes that the process read from storage (proc(5))."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return player.counts()
    fetched = dict(line.split(": ") for line in lines)["read_bytes"]
    return player.counts() | {"storage_bytes": int(fetched)}
