"""Latent attention with 128 heads, as in DeepSeek V3, and a whole batch of 512 tokens.

Each head of each token is a row of its own for some kernels: 65,536 rows, more than y has in a
grid.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cpu_device import CpuDevice
from latent_model import write_latent
from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.device.launch import MAX_GRID, Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
HEADS = 128
BATCH = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer whose head matrices are in Q8_0."""
    return write_latent(tmp_path_factory.mktemp("heads") / "many.gguf", HEADS)


def test_a_full_batch_has_grids_that_a_gpu_launches(
    model: Path, load: Callable[..., Engine]
) -> None:
    engine = load(model, context_size=1024, batch_size=BATCH)
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    program = part._program(1)
    assert isinstance(program, GpuProgram)
    grids = [
        c.grid
        for c in program.step_replay.calls(program.step(BATCH, 1, 0))
        if isinstance(c, Launch)
    ]
    assert max(x for x, _, _ in grids) >= HEADS * BATCH > MAX_GRID[1]
    calls = program.step_replay.calls(program.step(1, 1, 0))
    assert "split_attention" in {c.kernel.file for c in calls if isinstance(c, Launch)}


def test_a_prompt_gives_the_logits_of_the_cpu(model: Path, device: Device) -> None:
    device = CpuDevice(check=False) if isinstance(device, CpuDevice) else device
    ids = np.random.default_rng(1).integers(3, 280, 5, dtype=np.int32)
    config = RunConfig(model=model, context_size=64, batch_size=8)
    with load_engine(replace(config, device="cuda"), open_device=lambda _: device) as engine:
        found = engine.logits(ids)
    with load_engine(replace(config, device="cpu")) as engine:
        wanted = engine.logits(ids)
    errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert np.median(errors) < 0.05
