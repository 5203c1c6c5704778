"""The main loop of all worker scripts, which reads tasks and prints timings as JSON lines."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol


class Player(Protocol):
    """The protocol of a loaded model with one sequence, which a worker computes tokens with."""

    description: dict[str, Any]

    def compute(self, ids: list[int]) -> None:
        """Appends token ids to the sequence in one pass, and waits until it is finished."""

    def truncate(self, length: int) -> None:
        """Shortens the sequence to `length` tokens."""

    def counts(self) -> dict[str, float]:
        """Returns the program's counters since its start by name, such as "hits"; may be empty."""


def play(load: Callable[[dict[str, Any]], Player]) -> None:
    """Loads the model with the settings on stdin, then times turns until stdin ends.

    Output of libraries is redirected to stderr.
    """
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
    """Computes the ids in passes of `pass_size`, and yields the seconds of each pass."""
    for begin in range(0, len(ids), pass_size):
        start = time.perf_counter()
        player.compute(ids[begin : begin + pass_size])
        yield time.perf_counter() - start


def _counts(player: Player) -> dict[str, float]:
    """Returns the player's counters and the bytes that the process read from storage (proc(5))."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return player.counts()
    fetched = dict(line.split(": ") for line in lines)["read_bytes"]
    return player.counts() | {"storage_bytes": int(fetched)}
