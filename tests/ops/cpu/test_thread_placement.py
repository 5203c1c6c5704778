"""The placement of the pool's threads: they work on one core too, and are not bound to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.replay import Native, matrix

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(
        not hasattr(os, "sched_setaffinity"), reason="this system does not place threads"
    ),
]
TABLE = matrix(np.random.default_rng(1), 50, 256)
WEIGHTS = [matrix(np.random.default_rng(layer), 256, 256) for layer in range(8)]


def layers(ops: Any) -> Any:
    """Many short stages, so that threads meet often."""
    x = ops.embed(TABLE, 1.0)
    for weights in WEIGHTS:
        x = ops.linear_add(x, weights, x, 0.3)
    return ops.select_outputs(x)


@contextmanager
def allowed(cores: set[int]) -> Iterator[None]:
    """Restricts all threads of the process to these cores; threads that they start inherit it."""
    before = os.sched_getaffinity(0)
    _allow(cores)
    try:
        yield
    finally:
        _allow(before)


def _allow(cores: set[int]) -> None:
    for thread in _threads():
        os.sched_setaffinity(thread, cores)


def _threads() -> list[int]:
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]


def test_threads_on_one_core_give_the_same_bits() -> None:
    steps = [[token % 50] for token in range(100)]
    expected = Native(layers, threads=1).run(steps, threads=1)
    with allowed({min(os.sched_getaffinity(0))}):
        assert np.array_equal(Native(layers, threads=3).run(steps, threads=3), expected)


def test_a_thread_that_left_a_crowded_core_may_run_wherever_it_could_before() -> None:
    steps = [[token % 50] for token in range(100)]
    every = os.sched_getaffinity(0)
    with allowed({min(every)}):
        native = Native(layers, threads=2)
        native.run(steps[:10])  # both were seen on one core
        _allow(every)
        native.run(steps)
        assert all(os.sched_getaffinity(thread) == every for thread in _threads())
