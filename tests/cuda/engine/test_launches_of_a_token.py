"""The launches of a decoded token: six for a layer with experts, and five around the layers."""

from collections import Counter
from pathlib import Path

import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.config import RunConfig
from sharpi.device.launch import Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.loader import load_engine

pytestmark = pytest.mark.native
MODEL = Path(__file__).parents[2] / "references" / "data" / "qwen3moe.gguf"


def test_six_for_a_layer(tmp_path: Path) -> None:
    q8_0 = requantise(MODEL, tmp_path / "m.gguf", GGMLQuantizationType.Q8_0)
    config = RunConfig(model=q8_0, device="cuda", context_size=64)
    with load_engine(config, open_device=lambda _: CpuDevice(check=False)) as engine:
        part = engine.runner.parts[-1]
        assert isinstance(part, GpuPart)
        program = part._program(1)
        calls = program.calls(program.step(1, 1, 0))
    assert all(isinstance(call, Launch) for call in calls)
    files = Counter(call.kernel.file for call in calls if isinstance(call, Launch))
    layers = 2
    in_layers = {"matvec": 3, "attention": 1, "experts_gate_up": 1, "experts_down": 1}
    around = {"matvec": 1, "rms_norm": 2, "rope_angles": 1, "gather": 1}
    wanted = {
        name: layers * in_layers.get(name, 0) + around.get(name, 0) for name in in_layers | around
    }
    assert files == Counter({name: count for name, count in wanted.items() if count})
    assert len(calls) == 6 * layers + 5
