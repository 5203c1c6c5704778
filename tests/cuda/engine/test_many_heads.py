"""Latent attention with 128 heads, as in DeepSeek V3, and a whole batch of 512 tokens.

Each head of each token is a row of its own for some kernels: 65,536 rows, more than y has in a
grid.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cpu_device import CpuDevice
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from msgspec.structs import replace
from requantise import copy_metadata, write

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.device.launch import MAX_GRID, Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.ops.cuda.replay.program import GpuProgram

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
HEADS, PLAIN, ROTATED, VALUE, LATENT, HIDDEN = 128, 32, 16, 32, 64, 64
BATCH = 512
_SHAPES = {
    "attn_kv_a_norm": (LATENT,),
    "attn_kv_a_mqa": (LATENT + ROTATED, HIDDEN),
    "attn_k_b": (HEADS, LATENT, PLAIN),
    "attn_v_b": (HEADS, VALUE, LATENT),
    "attn_output": (HIDDEN, HEADS * VALUE),
    "attn_q_b": (HEADS * (PLAIN + ROTATED), 24),
}
_SIZES = {
    "head_count": HEADS,
    "key_length": LATENT + ROTATED,
    "value_length": LATENT,
    "kv_lora_rank": LATENT,
    "key_length_mla": PLAIN + ROTATED,
    "value_length_mla": VALUE,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer whose head matrices are in Q8_0."""
    target = tmp_path_factory.mktemp("heads") / "many.gguf"
    reader, writer = (
        GGUFReader(REFERENCES / "deepseek2-groups.gguf"),
        GGUFWriter(target, "deepseek2"),
    )
    copy_metadata(reader, writer, *(f"deepseek2.attention.{size}" for size in _SIZES))
    for size, value in _SIZES.items():
        writer.add_uint32(f"deepseek2.attention.{size}", value)
    random = np.random.default_rng(0)
    for tensor in reader.tensors:
        shape = _SHAPES.get(tensor.name.removeprefix("blk.0.").removesuffix(".weight"))
        if shape is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        elif len(shape) == 1:
            writer.add_tensor(tensor.name, np.ones(shape, np.float32))
        else:
            values = random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
            kind = GGMLQuantizationType.F16 if shape[-1] % 32 else GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
    write(writer)
    return target


def test_a_full_batch_has_grids_that_a_gpu_launches(
    model: Path, load: Callable[..., Engine]
) -> None:
    engine = load(model, context_size=1024, batch_size=BATCH)
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    program = part._program(1)
    assert isinstance(program, GpuProgram)
    grids = [c.grid for c in program.calls(program.step(BATCH, 1, 0)) if isinstance(c, Launch)]
    assert max(x for x, _, _ in grids) >= HEADS * BATCH > MAX_GRID[1]
    calls = program.calls(program.step(1, 1, 0))
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
