"""Prompts multiply matrices of F16 and BF16 on tensor cores, and read them once a batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.device.launch import Launch
from sharpi.engine.engine import Engine

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
IDS = np.random.default_rng(5).integers(3, 280, 40).astype(np.int32)
# Several parts of one input, biases, a gated shared expert; a dense layer, latent attention.
MODELS = ("qwen2moe", "deepseek2-lite")
TYPES = ("F16", "BF16")
Load = Callable[..., Engine]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entry points that were launched, and the names of the library's products."""
    names: list[str] = []
    launch, matmul, batched = CpuDevice.launch, CpuDevice.matmul, CpuDevice.batched_matmul

    def watched(self: CpuDevice, what: Launch) -> None:
        names.append(what.kernel.entry)
        launch(self, what)

    def product(self: CpuDevice, *given: Any) -> None:
        names.append("matmul")
        matmul(self, *given)

    def batched_product(self: CpuDevice, *given: Any) -> None:
        names.append("batched_matmul")
        batched(self, *given)

    monkeypatch.setattr(CpuDevice, "launch", watched)
    monkeypatch.setattr(CpuDevice, "batched_matmul", batched_product)
    monkeypatch.setattr(CpuDevice, "matmul", product)
    return names


def model(case: str, quant_type: str, folder: Path) -> Path:
    wanted = GGMLQuantizationType[quant_type]
    return requantise(REFERENCES / f"{case}.gguf", folder / "m.gguf", wanted)


@pytest.mark.parametrize("quant_type", TYPES)
@pytest.mark.parametrize("case", MODELS)
def test_values_are_those_of_floats_within_rounding(
    case: str, quant_type: str, load: Load, entries: list[str], tmp_path: Path
) -> None:
    path, sizes = model(case, quant_type, tmp_path), {"batch_size": 40, "context_size": 64}
    expected = load(path, precision="f32", **sizes).logits(IDS)
    assert "matmul" not in entries
    entries.clear()
    logits = load(path, precision="int8", **sizes).logits(IDS)
    assert "matmul" in entries
    assert ("dequantise_bf16" in entries) == (quant_type == "BF16")
    assert "dequantise_f16" not in entries
    assert entries.count(f"matvec_exact_{quant_type.lower()}") == 1  # the output, of one row
    assert np.abs(logits - expected).max() < 4e-3 * np.abs(expected).max()


@pytest.mark.parametrize("quant_type", TYPES)
def test_heads_are_multiplied_in_one_call(
    quant_type: str, load: Load, entries: list[str], tmp_path: Path
) -> None:
    path = model("deepseek2-lite", quant_type, tmp_path)
    load(path, precision="int8", batch_size=40, context_size=64).logits(IDS)
    assert entries.count("batched_matmul") == 4  # for keys and for values, in two layers
    # The routed experts of the second layer have one of these launches.
    assert entries.count(f"experts_grouped_product_exact_{quant_type.lower()}") == 1


@pytest.mark.parametrize(
    "options", [{"precision": "f32"}, {"disabled": ("tensor-cores",)}, {"batch_size": 31}], ids=str
)
def test_heads_are_multiplied_in_floats(
    options: dict[str, Any], load: Load, entries: list[str], tmp_path: Path
) -> None:
    path = model("deepseek2-lite", "F16", tmp_path)
    sizes = {"precision": "int8", "batch_size": 40, "context_size": 64} | options
    load(path, **sizes).logits(IDS)
    assert "batched_matmul" not in entries
    assert entries.count("experts_grouped_product_exact_f16") > 1


@pytest.mark.parametrize(
    "options", [{"precision": "f32"}, {"disabled": ("tensor-cores",)}, {"batch_size": 31}], ids=str
)
def test_there_are_none(
    options: dict[str, Any], load: Load, entries: list[str], tmp_path: Path
) -> None:
    path = model("qwen2moe", "F16", tmp_path)
    sizes = {"precision": "int8", "batch_size": 40, "context_size": 64} | options
    load(path, **sizes).logits(IDS)
    assert "matmul" not in entries
    assert entries.count("matvec_exact_f16") > 1
