"""Loads a file on the GPU and on the CPU, and computes the distance between their logits."""

import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as AbstractSequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from sharpi.device.device import Device, Work
from sharpi.device.gpu import open_gpu
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cuda import gpu_limits as gpu_limits
from sharpi.settings import RunConfig

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


TESTS = Path(__file__).resolve().parents[2] / "tests"


def device_opener(is_dry: bool) -> Callable[[int], Device]:
    """Returns a function that opens the GPU, or the emulation on the CPU if `is_dry`.

    The emulation also reduces the bytes and tries with which rates are measured.
    """
    return _open_cpu if is_dry else open_gpu


def _open_cpu(index: int = 0) -> Device:
    add_tests("cuda")
    from cpu_device import CpuDevice

    gpu_limits.BYTES_A_TRY, gpu_limits.BUS_BYTES_A_TRY = 1 << 18, 1 << 16
    gpu_limits.READS_OF_A_TRY = gpu_limits.TRIES = 1
    device: Device = CpuDevice(check=False)
    return device


def add_tests(folder: str) -> None:
    """Adds a folder of the tests, and the tests' root folder, to the import path."""
    for path in (str(TESTS / folder), str(TESTS)):
        if path not in sys.path:
            sys.path.append(path)


class WatchedDevice:
    """Wraps a device and counts its graphs; all other attributes are those of the device.

    `captured`, `replayed`: the numbers of graph captures and replays.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.captured, self.replayed = 0, 0

    def record(self, work: AbstractSequence[Work]) -> Work:
        """Captures work to a graph; returns its replay. Counts the capture and each replay."""
        graph = self._device.record(work)
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            graph()

        return replay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)
