"""Routed experts in tiles on tensor cores give whole models the bits that they have without."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.device.launch import Launch
from sharpi.engine.engine import Engine

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[3] / "references" / "data"
TOKENS = 31  # fewer than the products that depend on tensor cores in other ways
Load = Callable[..., Engine]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files of the kernels that were launched."""
    files: set[str] = set()
    launch = CpuDevice.launch

    def watched(self: CpuDevice, what: Launch) -> None:
        files.add(what.kernel.file)
        launch(self, what)

    monkeypatch.setattr(CpuDevice, "launch", watched)
    return files


@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("case", ["qwen3moe", "gpt-oss"])
def test_bits(case: str, slots: int | None, load: Load, kernels: set[str], tmp_path: Path) -> None:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids = np.tile(arrays["tokens"].astype(np.int32), 8)[:TOKENS]
    q8_0 = requantise(REFERENCES / f"{case}.gguf", tmp_path / "m.gguf", GGMLQuantizationType.Q8_0)
    sizes = {"precision": "int8", "batch_size": TOKENS, "moe_slots": slots, "context_size": 64}
    expected = load(q8_0, disabled=("tensor-cores",), **sizes).logits(ids)
    assert "experts_tiled_product" not in kernels
    logits = load(q8_0, **sizes).logits(ids)
    assert "experts_tiled_product" in kernels
    np.testing.assert_array_equal(logits, expected)
