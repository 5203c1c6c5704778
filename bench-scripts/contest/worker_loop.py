"""The main loop of all worker scripts, which reads tasks and prints timings as JSON lines."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol


class Model(Protocol):
    """The protocol of a loaded model with one sequence, which a worker computes tokens with."""

    description: dict[str, Any]

    def compute(self, ids: list[int]) -> None:
        """Appends token ids to the sequence in one pass, and waits until it is finished."""

    def truncate(self, length: int) -> None:
        """Shortens the sequence to `length` tokens."""

    def counts(self) -> dict[str, float]:
        """Returns the program's counters since its start by name, such as "hits"; may be empty."""


def run(load: Callable[[dict[str, Any]], Model]) -> None:
    """Loads the model with the settings on stdin, then times tasks until stdin ends.

    Output of libraries is redirected to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    model = load(json.loads(sys.stdin.readline()))
    print(json.dumps(model.description), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_timed(model, **json.loads(line))), file=answers, flush=True)


def _timed(model: Model, before: list[int], ids: list[int], pass_size: int) -> dict[str, Any]:
    list(_passes(model, before, 512))
    counts, start = _counts(model), time.perf_counter()
    pass_seconds = list(_passes(model, ids, pass_size))
    seconds = time.perf_counter() - start
    grown = {name: value - counts[name] for name, value in _counts(model).items()}
    model.truncate(0)
    return {"seconds": seconds, "pass_seconds": pass_seconds, "counts": grown}


def _passes(model: Model, ids: list[int], pass_size: int) -> Iterator[float]:
    """Computes the ids in passes of `pass_size`, and yields the seconds of each pass."""
    for begin in range(0, len(ids), pass_size):
        start = time.perf_counter()
        model.compute(ids[begin : begin + pass_size])
        yield time.perf_counter() - start


def _counts(model: Model) -> dict[str, float]:
    """Returns the model's counters and the bytes that the process read from storage (proc(5))."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return model.counts()
    fetched = dict(line.split(": ") for line in lines)["read_bytes"]
    return model.counts() | {"storage_bytes": int(fetched)}
