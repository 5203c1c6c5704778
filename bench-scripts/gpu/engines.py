"""Engines on a GPU and on the CPU for the same file, and how far their logits are apart."""

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
    """Loads a file on either processor; RunConfig's fields are keywords."""

    def __init__(self, open_device: Callable[[], Device]) -> None:
        self.open_device = open_device

    @contextmanager
    def on_gpu(self, path: Path, **options: Any) -> Iterator[Engine]:
        """The GPU insists: a file that it has no kernels for raises."""
        config = replace(RunConfig(model=path, device="cuda"), **options)
        with load_engine(config, open_device=self.open_device) as engine:
            yield engine

    @contextmanager
    def on_cpu(self, path: Path, **options: Any) -> Iterator[Engine]:
        """The same on the CPU."""
        with load_engine(replace(RunConfig(model=path, device="cpu"), **options)) as engine:
            yield engine


def error(logits: Logits, reference: Logits) -> float:
    """Norm of the difference over the norm; infinite where anything is no number."""
    return _finite(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


def typical_error(logits: Logits, reference: Logits) -> float:
    """The same of the median token.

    Rounding differs where one side multiplies f16 matrices or rounds in another order, and random
    models choose between nearly equal experts: a token for which another one wins is far off.
    """
    if not np.isfinite(logits).all():
        return float("inf")
    norms = np.linalg.norm(logits - reference, axis=1) / np.linalg.norm(reference, axis=1)
    return _finite(np.median(norms))


def _finite(value: np.floating) -> float:
    return float(value) if np.isfinite(value) else float("inf")


def step_by_step(engine: Engine, ids: Ids) -> Logits:
    """Logits after each token, decoded one after the other."""
    sequence = Sequence(engine.runner)
    try:
        return np.stack([sequence.extend([int(i)]).copy() for i in ids])
    finally:
        sequence.truncate(0)
