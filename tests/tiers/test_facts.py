"""Sizes of models against the tensors of their files, and of buffers against recorded steps."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.loader import load_engine
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, Tensor, open_gguf
from sharpi.model.config import ModelConfig, read_config
from sharpi.ops.cpu.kv_cache import kv_bytes
from sharpi.ops.cpu.program import Program
from sharpi.resources import demo_model
from sharpi.settings import F16_TYPES, RunConfig
from sharpi.system.files import ALIGNMENT
from sharpi.tiers.facts import ModelFacts, _layer, _slot_bytes, read_facts
from sharpi.tiers.scratch import read_widths, scratch_bytes

REFERENCES = Path(__file__).parents[1] / "references" / "data"
MODELS = [*sorted(REFERENCES.glob("*.gguf")), demo_model()]


def opened(path: Path) -> tuple[GgufFile, ModelConfig, ModelFacts]:
    file = open_gguf(path)
    config = read_config(file)
    return file, config, read_facts(file, config)


def tensor(name: str, *shape: int, offset: int = 0) -> Tensor:
    """Returns a tensor of bytes."""
    return Tensor(name, QuantType.I8, shape, np.zeros(prod(shape), np.uint8), 0, offset)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_byte_counts_once(path: Path) -> None:
    file, config, facts = opened(path)
    with file:
        everything = sum(t.num_bytes for t in file.tensors.values())
    experts = sum(layer.experts_bytes for layer in facts.layers)
    assert facts.dense_weights_bytes + experts == everything
    assert sum(layer.kv_page_bytes for layer in facts.layers) == kv_bytes(config.attention, 64)
    assert (experts > 0) == config.is_moe


def test_experts_of_the_demo() -> None:
    file, config, facts = opened(demo_model())
    with file:
        names = [f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        size = sum(file.tensors[name].num_bytes for name in names)
    first = facts.layers[0]
    assert first.num_experts == config.num_experts
    assert first.expert_bytes == size // config.num_experts
    assert first.expert_bytes <= first.slot_bytes <= first.expert_bytes + 3 * 2 * ALIGNMENT


def test_a_tied_embedding_counts_as_output() -> None:
    file, _, facts = opened(REFERENCES / "gemma3.gguf")
    with file:
        assert "output.weight" not in file.tensors
        assert facts.embedding_bytes == 0
        assert facts.output_bytes >= file.tensors["token_embd.weight"].num_bytes


def test_experts_that_are_not_stacked_have_no_known_size() -> None:
    file, config, _ = opened(REFERENCES / "mixtral.gguf")
    file.close()
    router = tensor("blk.0.ffn_gate_inp.weight", 4, 8)
    apart = [tensor(f"blk.0.ffn_up.{i}.weight", 4, 8) for i in range(4)]
    layer = _layer([router, *apart], config, 0, F16_TYPES)
    assert (layer.expert_bytes, layer.slot_bytes, layer.experts_bytes) == (None, 0, 0)
    assert _layer([router], config, 0, F16_TYPES).expert_bytes is None


@pytest.mark.parametrize(
    ("offset", "piece", "expected"),
    [(0, 4096, 4096), (1, 4096, 8192), (0, 4097, 8192), (4095, 2, 8192), (0, 3 * 4096, 3 * 4096)],
)
def test_a_slot_covers_the_blocks_around_its_expert(offset: int, piece: int, expected: int) -> None:
    assert _slot_bytes([tensor("blk.0.ffn_up_exps.weight", 1, 1, piece, offset=offset)]) == expected


@given(st.integers(0, 1 << 20), st.integers(1, 5000), st.integers(1, 32))
def test_every_expert_fits_its_slot(offset: int, piece: int, num_experts: int) -> None:
    slot = _slot_bytes([tensor("blk.0.ffn_up_exps.weight", num_experts, 1, piece, offset=offset)])
    assert slot % ALIGNMENT == 0
    for expert in range(num_experts):
        start = offset + expert * piece
        blocks = set(range(start // ALIGNMENT, (start + piece - 1) // ALIGNMENT + 1))
        assert len(blocks) * ALIGNMENT <= slot


pytestmark = pytest.mark.native
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("batch_size", "precision", "context_size", "num_outputs"),
    [(1, "int8", 64, 64), (512, "int16", 2000, 1)],
)
def test_bound_holds_and_is_near(
    model: Path, batch_size: int, precision: str, context_size: int, num_outputs: int
) -> None:
    config = RunConfig(
        model=model,
        batch_size=batch_size,
        precision=precision,  # type: ignore[arg-type]
        context_size=context_size,
    )
    with load_engine(config) as engine:
        settings = engine.runner.settings
        program: Program = engine.runner.parts[0]._program(num_outputs)
        bound = scratch_bytes(
            read_widths(engine.file, engine.model_config),
            batch_size=settings.batch_size,
            num_positions=settings.context_size,
            rounding=settings.rounding,
            num_threads=0,  # the program's figure leaves out the threads' tiles
            num_outputs=num_outputs,
        )
    assert program.num_bytes <= bound <= 2 * program.num_bytes + 8 * MIB
