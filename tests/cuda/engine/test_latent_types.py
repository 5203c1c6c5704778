"""Latent attention on a GPU with rotated keys of few bits: what the CPU computes with them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from latent_model import write_latent

from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence
from sharpi.settings import KvType

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
TYPES: list[KvType] = ["q8_0", "q5_1", "iq4_nl", "turbo3"]
IDS = np.random.default_rng(1).integers(3, 280, 70, dtype=np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with keys of 96 values, of which the first 64 are also the values."""
    return write_latent(tmp_path_factory.mktemp("latent") / "m.gguf", 16, rotated=32)


def error(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def logits(engine: Engine, num_decoded: int = 4) -> np.ndarray:
    """Returns the logits after each of the last tokens, each a step; the prompt is one step."""
    sequence = Sequence(engine.runner)
    sequence.extend(IDS[:-num_decoded].tolist())
    rows = [sequence.extend([token]).copy() for token in IDS[-num_decoded:].tolist()]
    return np.stack(rows)


@pytest.mark.parametrize("kind", TYPES)
def test_logits_are_those_of_the_cpu(kind: KvType, model: Path, load: Load) -> None:
    options = {"context_size": 128, "batch_size": 128, "precision": "f32"}
    exact = logits(load(model, device="cpu", **options))
    wanted = logits(load(model, device="cpu", kv_type=kind, **options))
    rounding = error(wanted, exact)
    assert rounding > 1e-4
    assert error(logits(load(model, kv_type=kind, **options)), wanted) < max(0.2 * rounding, 2e-3)


@pytest.mark.parametrize("kind", ["q4_0"])
def test_so_they_are_with_rounded_activations(kind: KvType, model: Path, load: Load) -> None:
    options = {"context_size": 128, "batch_size": 128, "precision": "int8"}
    wanted = logits(load(model, device="cpu", kv_type=kind, **options))
    assert error(logits(load(model, kv_type=kind, **options)), wanted) < 0.05


@pytest.mark.parametrize("rotated", [16, 32])
def test_folded_launches_give_the_same_bits(rotated: int, load: Load, tmp_path: Path) -> None:
    """Queries with 16 rotated values are not whole blocks of 32, and are rounded by themselves."""
    path = write_latent(tmp_path / "m.gguf", 4, rotated)
    options = {"context_size": 128, "batch_size": 128, "precision": "int8"}
    found = logits(load(path, **options))
    np.testing.assert_array_equal(found, logits(load(path, disabled=("folding",), **options)))


def test_a_prompt_cache_brings_rotated_rows_back(model: Path, load: Load, tmp_path: Path) -> None:
    options = {"context_size": 128, "kv_type": "q4_0"}
    engine = load(model, **options)
    memory, size = engine.runner.memory, engine.runner.memory.page_bytes
    Sequence(engine.runner).extend(IDS.tolist())
    data, again = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    memory.read_page(0, data)
    other = load(model, **options).runner.memory
    other.write_page(1, data)
    other.read_page(1, again)
    assert data.any()
    assert (data == again).all()
