"""Whole models through the CUDA code path, against `transformers` and the CPU engine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references"
CASES = sorted(path.stem for path in REFERENCES.glob("*.npz"))
Load = Callable[..., Engine]


@pytest.fixture
def load(device: Device) -> Iterator[Load]:
    """Loads engines that compute on the device; RunConfig's fields are keywords."""
    engines: list[Engine] = []

    def load_one(model: Path, **options: Any) -> Engine:
        config = RunConfig(model=model, **({"device": "cuda"} | options))
        engines.append(load_engine(config, open_device=lambda: device))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


def expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        return arrays["tokens"].astype(np.int32), arrays["logits"]


def error(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


def step_by_step(engine: Engine, ids: np.ndarray) -> np.ndarray:
    sequence = Sequence(engine.runner)
    return np.stack([sequence.extend([i]).copy() for i in ids.tolist()])


@pytest.mark.parametrize("case", CASES)
def test_float32_logits_are_those_of_transformers(case: str, load: Load) -> None:
    ids, logits = expected(case)
    engine = load(REFERENCES / f"{case}.gguf", precision="f32")
    assert error(engine.logits(ids), logits) < 2e-3
