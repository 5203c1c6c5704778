"""Statistics of a GPU's slots add up: for prompts and decode, each miss mode, and three tiers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_file import contradiction, format_stats, read_stats
from sharpi.settings import ExpertConfig, RunConfig

pytestmark = pytest.mark.native
DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
BATCH, NUM_BATCHES = 12, 2
PROMPT = [1, *np.random.default_rng(1).integers(3, 2000, BATCH + 5).tolist()]
NUM_DECODED, NUM_USED, NUM_LAYERS = 4, 2, 6
MIB = 1 << 20


def load_on(device: CpuDevice | None, **options: Any) -> Engine:
    usual = {"context_size": 128, "batch_size": BATCH, "device": "cuda" if device else "cpu"}
    config = RunConfig(model=DEMO, **(usual | options))
    if device is None:
        return load_engine(config)
    return load_engine(config, open_device=lambda _: device)


def recorded(device: CpuDevice | None, path: Path, **options: Any) -> ExpertStats:
    """Returns the statistics of a prompt and some tokens after it, as read from their file."""
    experts = ExpertConfig(stats=path, **options.pop("experts", {}))
    with load_on(device, experts=experts, **options) as engine:
        sequence = Sequence(engine.runner)
        token = int(np.argmax(sequence.extend(PROMPT)))
        for _ in range(NUM_DECODED):
            token = sequence.extend_largest(token)
    assert not any("stats" in note for note in engine.exit_notes)
    stats = read_stats(path)
    assert contradiction(stats) is None
    assert (stats.num_prompt_tokens, stats.num_tokens) == (len(PROMPT), NUM_DECODED)
    return stats


@pytest.mark.parametrize(
    ("miss", "experts"),
    [
        ("cpu", {"policy": "learned-keep", "prefetch": False}),
        ("bus", {"resident": "first-n"}),
        ("cpu", {"resident": "first-n"}),
        ("bus", {"policy": "slru", "warm_pin": 1, "warm_pin_after": 100}),
    ],
    ids=str,
)
def test_prompts_and_decode(miss: str, experts: dict[str, Any], tmp_path: Path) -> None:
    asked = {"miss": miss} | experts
    stats = recorded(CpuDevice(check=False), tmp_path / "s.json", moe_slots=4, experts=asked)
    assert stats.tier == "VRAM"
    assert stats.decode.accesses == NUM_DECODED * NUM_USED * NUM_LAYERS
    *others, last = stats.layers
    assert all(layer.prompt.accesses > NUM_USED for layer in others)
    assert last.prompt.accesses == NUM_USED
    assert stats.prompt.loads + stats.prompt.computed > 0
    if "resident" in experts:
        assert (stats.decode.computed > 0) == (miss == "cpu")
    for layer in stats.layers:
        brought = layer.total.loads + layer.total.prefetched + layer.fills
        assert layer.bytes_read == brought * layer.expert_bytes
    reads_in_place = miss == "stream" and "resident" in experts
    assert (stats.decode.stall_seconds > 0) != reads_in_place
    assert stats.fills >= (4 * NUM_LAYERS if "resident" in experts else 0)
    assert (stats.before_pin is not None) == ("warm_pin" in experts)


@pytest.mark.parametrize(
    ("slots", "tier", "per_layer"),
    [(4, "VRAM", (16, 16, 16, 4, 4, 4)), (None, "RAM, VRAM", (16,) * 6)],
)
def test_layers_beside_the_gpu_are_told_with_those_on_it(
    slots: int | None, tier: str, per_layer: tuple[int, ...], tmp_path: Path
) -> None:
    stats = recorded(CpuDevice(check=False), tmp_path / "s.json", gpu_layers=3, moe_slots=slots)
    assert stats.tier == tier
    assert tuple(layer.num_slots for layer in stats.layers) == per_layer
    assert stats.decode.accesses == NUM_DECODED * NUM_USED * NUM_LAYERS
    assert all(layer.total.hits == layer.total.accesses for layer in stats.layers[:3])
    assert "all experts are in RAM in layers 0, 1, 2" in stats.notes
    assert ("all experts are in VRAM in layers 3, 4, 5" in stats.notes) == (slots is None)


def test_accesses_are_those_of_the_cpu(tmp_path: Path) -> None:
    options = {"moe_slots": 4, "experts": {"policy": "lru", "prefetch": False, "miss": "bus"}}
    on_gpu = recorded(CpuDevice(check=False), tmp_path / "gpu.json", **options)
    on_cpu = recorded(None, tmp_path / "cpu.json", **options)
    assert on_gpu.decode.accesses == on_cpu.decode.accesses
    for one, other in zip(on_gpu.layers, on_cpu.layers, strict=True):
        assert sum(one.uses) == sum(other.uses)
        assert one.expert_bytes == other.expert_bytes


@pytest.mark.parametrize("policy", ["lfru", None])
def test_three_tiers(policy: str | None, tmp_path: Path) -> None:
    experts = {"policy": policy}
    options = {"moe_slots": 4, "ram": 9 * MIB, "experts": experts}
    stats = recorded(CpuDevice(check=False), tmp_path / "s.json", **options)
    below = stats.below
    assert below is not None
    assert (stats.tier, below.tier) == ("VRAM", "RAM")
    assert stats.decode.computed == below.decode.accesses > 0
    assert 0 < below.prompt.accesses <= NUM_BATCHES * stats.prompt.computed
    assert below.bytes_read > 0
    assert below.total.loads > 0
    assert all(layer.decode.stall_seconds > 0 for layer in stats.layers)
    assert below.decode.stall_seconds <= stats.decode.stall_seconds
    text = format_stats(stats)
    in_vram = text[text.index("slots       in VRAM") : text.index("note  ")]
    assert f"stalled {stats.decode.stall_seconds:.3f} s" in in_vram
    assert "slots       in RAM" in text


def test_routes_are_printed_with_loads_and_pins(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ExpertConfig(resident="ids", resident_ids="3,5", miss="bus", trace_routes=True)
    with load_on(CpuDevice(check=False), moe_slots=2, experts=asked) as engine:
        sequence = Sequence(engine.runner)
        token = int(np.argmax(sequence.extend(PROMPT[:6])))
        sequence.extend_largest(token)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("moe: ")]
    assert len(lines) == 6 * 5 + 1 + NUM_LAYERS
    assert all(line.endswith("pinned 3 5") and " loads " in line for line in lines)
    assert lines[0].startswith("moe: position 0 layer 0 experts ")
    assert lines[-1].startswith("moe: position 6 layer 5 experts ")
