"""Prompts multiply experts of F16 and BF16 on tensor cores: the values, and where bits are equal.

In the last layer, which computes only what is read, experts are multiplied in float32.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.device.device import Device
from sharpi.device.launch import Launch
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.ops.cuda.expert_slots.prefill_expert_access import PrefillExpertAccess
from sharpi.ops.cuda.launchers.experts import experts_grouped
from sharpi.ops.cuda.recorded import RoutedRows
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers import gpu as gpu_planning
from sharpi.tiers.expert_memory import GpuStaging

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[3] / "references" / "data"
IDS = np.random.default_rng(5).integers(3, 280, 40).astype(np.int32)
F16, BF16, Q8_0 = GGMLQuantizationType.F16, GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0
SIZES: dict[str, Any] = {"precision": "int8", "batch_size": 40, "context_size": 64}
Load = Callable[..., Engine]


@pytest.fixture
def entries(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entry points that were launched on the device, or on another one of the CPU."""
    names: list[str] = []

    def watch(kind: type[Any]) -> None:
        launch = kind.launch

        def watched(self: Device, what: Launch) -> None:
            names.append(what.kernel.entry)
            launch(self, what)

        monkeypatch.setattr(kind, "launch", watched)

    for kind in {CpuDevice, type(device)}:
        watch(kind)
    return names


def model(case: str, folder: Path, kind: GGMLQuantizationType = F16, **others: Any) -> Path:
    """Writes a model in one type; `others` are those of gate, up or down of its experts."""
    parts = {f"ffn_{name}_exps": each for name, each in others.items()}
    return requantise(REFERENCES / f"{case}.gguf", folder / "m.gguf", kind, parts)


def count(entries: list[str], beginning: str) -> int:
    return sum(entry.startswith(beginning) for entry in entries)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("qwen3moe", F16),
        ("qwen3moe", BF16),
        ("gpt-oss", BF16),  # biases
        ("llama4", F16),  # weights of the experts' inputs
        ("nemotron_h_moe", F16),  # up without a gate
        ("gemma4-moe", BF16),  # factors; gate and up in one tensor
    ],
    ids=str,
)
@pytest.mark.parametrize("slots", [None, 2])
def test_values_are_those_of_floats_within_rounding(
    case: str,
    kind: GGMLQuantizationType,
    slots: int | None,
    load: Load,
    entries: list[str],
    tmp_path: Path,
) -> None:
    path, options = model(case, tmp_path, kind), SIZES | {"moe_slots": slots}
    expected = load(path, **(options | {"precision": "f32"})).logits(IDS)
    assert not count(entries, "experts_f16")
    logits = load(path, **options).logits(IDS)
    assert count(entries, f"experts_f16_product_{kind.name.lower()}")
    assert bool(count(entries, "experts_f16_gate_up")) == (case != "nemotron_h_moe")
    assert np.abs(logits - expected).max() < 4e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("types", "products", "conversions"),
    [
        ({"gate": F16, "up": BF16, "down": F16}, 3, {"to_f16", "items_to_f16"}),
        ({"gate": Q8_0, "up": F16, "down": Q8_0}, 1, {"to_f16"}),
        ({"gate": Q8_0, "up": Q8_0, "down": BF16}, 1, {"items_to_f16"}),
        ({"gate": F16, "up": F16, "down": Q8_0}, 0, {"to_f16"}),
    ],
)
def test_matrices_of_different_types(
    types: dict[str, Any],
    products: int,
    conversions: set[str],
    load: Load,
    entries: list[str],
    tmp_path: Path,
) -> None:
    """Each takes the activations that it can: in f16, or of 16 bits."""
    path = model("qwen3moe", tmp_path, GGMLQuantizationType.F32, **types)
    options = SIZES | {"precision": "int16"}
    expected = load(path, **(options | {"disabled": ("tensor-cores",)})).logits(IDS)
    assert not count(entries, "experts_f16")
    entries.clear()
    logits = load(path, **options).logits(IDS)
    assert count(entries, "experts_f16_product") == products
    assert {"to_f16", "items_to_f16"} & set(entries) == conversions
    assert np.abs(logits - expected).max() < 4e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    "options",
    [{"precision": "f32"}, {"disabled": ("tensor-cores",)}, {"batch_size": 20}],
    ids=str,
)
def test_what_does_without(
    options: dict[str, Any], load: Load, entries: list[str], tmp_path: Path
) -> None:
    load(model("qwen3moe", tmp_path), **(SIZES | options)).logits(IDS)
    assert not count(entries, "experts_f16")
    assert "items_to_f16" not in entries


@pytest.mark.parametrize("items", [10, 11])
def test_experts_need_enough_items(
    items: int, load: Load, entries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 experts 40 tokens use two each."""
    monkeypatch.setattr(experts_grouped, "TILED_ITEMS", items)
    load(model("qwen3moe", tmp_path), **SIZES).logits(IDS)
    assert bool(count(entries, "experts_f16_product")) == (items <= 10)


def staged_in_parts(patch: pytest.MonkeyPatch) -> None:
    """Lets a layer's experts pass one by one."""
    staging = GpuStaging(num_missed=4, num_early=2, num_streamed=1)
    patch.setattr(gpu_planning, "gpu_staging", lambda *_: staging)


@pytest.mark.parametrize("case", ["qwen3moe", "gpt-oss"])
def test_bits_do_not_depend_on_where_experts_are(
    case: str, load: Load, entries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In VRAM, in slots, or in buffers through which they pass one by one."""
    path = model(case, tmp_path)
    expected = load(path, **SIZES).logits(IDS)
    few = count(entries, "experts_f16_product")
    np.testing.assert_array_equal(load(path, moe_slots=2, **SIZES).logits(IDS), expected)
    staged_in_parts(monkeypatch)
    entries.clear()
    np.testing.assert_array_equal(load(path, moe_slots=2, **SIZES).logits(IDS), expected)
    assert count(entries, "experts_f16_product") > few


@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("fits", [True, False])
def test_bits_do_not_depend_on_the_room_for_rows(
    slots: int | None, fits: bool, load: Load, entries: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A pass whose routed tokens do not fit is run again, with fewer tokens at a time."""
    path, options = model("qwen3moe", tmp_path), SIZES | {"moe_slots": slots}
    expected = load(path, **options).logits(IDS)
    if not fits:
        monkeypatch.setattr(RoutedRows, "experts_at_once", lambda _, num_experts: num_experts)
    entries.clear()
    limited = load(path, **options, experts=ExpertConfig(miss="bus", capacity_factor=0.5))
    np.testing.assert_array_equal(limited.logits(IDS), expected)
    assert "pack_routes" in entries
    assert count(entries, "experts_f16_product") > 1


def test_experts_that_the_cpu_computes_are_skipped(
    load: Load, entries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model("qwen3moe", tmp_path)
    expected = load(path, **SIZES).logits(IDS)
    monkeypatch.setattr(PrefillExpertAccess, "_choose", lambda *_: "host")
    engine = load(path, moe_slots=4, **SIZES, experts=ExpertConfig(miss="cpu"))
    engine.logits(IDS)  # which fills the slots
    entries.clear()
    logits = engine.logits(IDS)
    assert "experts_host_merge" in entries
    assert count(entries, "experts_f16_product")
    assert np.abs(logits - expected).max() < 4e-3 * np.abs(expected).max()


def test_bits_are_those_of_one_gpu(tmp_path: Path, entries: list[str]) -> None:
    path, found = model("qwen3moe", tmp_path), []
    for gpus in ((), (0, 1)):
        device = CpuDevice(check=False, others=[CpuDevice(check=False)] if gpus else [])
        config = RunConfig(model=path, device="cuda", gpus=gpus, **SIZES)
        engine = load_engine(config, open_device=lambda _, first=device: first)  # type: ignore[misc]
        found.append(engine.logits(IDS))
        engine.close()
    assert count(entries, "experts_f16_product")
    np.testing.assert_array_equal(*found)


def test_steps_of_several_sequences_have_the_bits_of_single_tokens(
    load: Load, entries: list[str], tmp_path: Path
) -> None:
    """Tokens that share a step must not be multiplied in f16, however many they are."""
    runner = load(model("gpt-oss", tmp_path), **(SIZES | {"num_parallel": 4})).runner
    pages = [np.array([i], np.int32) for i in range(4)]
    last = np.array([9], np.int32)
    segments = [Segment(IDS[10 * i : 10 * i + 10], 0, last, pages[i], None, i) for i in range(4)]
    together = runner.step(segments).copy()
    assert not count(entries, "experts_f16")
    alone = [runner.step([each]).copy() for each in segments]
    np.testing.assert_array_equal(together, np.concatenate(alone))
