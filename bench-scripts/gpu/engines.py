"""Loads a file on the GPU and on the CPU, and computes the distance between their logits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence

Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


class Engines:
    """Loads files on the GPU or the CPU; keyword arguments are fields of RunConfig."""

    def __init__(self, open_device: Callable[[int], Device]) -> None:
        self.open_device = open_device

    @contextmanager
    def on_gpu(self, path: Path, **options: Any) -> Iterator[Engine]:
        """Context manager that loads a file on the GPU; raises an error without GPU kernels."""
        config = replace(RunConfig(model=path, device="cuda"), **options)
        with load_engine(config, open_device=self.open_device) as engine:
            yield engine

    @contextmanager
    def on_cpu(self, path: Path, **options: Any) -> Iterator[Engine]:
        """Context manager that loads a file on the CPU."""
        with load_engine(replace(RunConfig(model=path, device="cpu"), **options)) as engine:
            yield engine


def error(logits: Logits, reference: Logits) -> float:
    """Returns the norm of the difference divided by the norm of `reference`.

    Returns infinity if the result is not finite.
    """
    return _finite(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


def typical_error(logits: Logits, reference: Logits) -> float:
    """Returns the median over tokens of the relative error, as `error` computes it.

    The median is robust against rounding differences, which make random models choose another of
    several nearly equal experts for some tokens. The logits of these tokens differ a lot.
    """
    if not np.isfinite(logits).all():
        return float("inf")
    norms = np.linalg.norm(logits - reference, axis=1) / np.linalg.norm(reference, axis=1)
    return _finite(np.median(norms))


def _finite(value: np.floating) -> float:
    return float(value) if np.isfinite(value) else float("inf")


def step_by_step(engine: Engine, ids: Ids) -> Logits:
    """Returns the logits (tokens, vocabulary) after each token, decoded one after the other."""
    sequence = Sequence(engine.runner)
    try:
        return np.stack([sequence.extend([int(i)]).copy() for i in ids])
    finally:
        sequence.truncate(0)
