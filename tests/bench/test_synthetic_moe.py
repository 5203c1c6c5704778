"""The synthetic model: blocks of sane values, no two experts alike, a file that sharpi runs."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from synthetic_moe import TYPES, Shape, block_pool, write_model

from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import open_gguf
from sharpi.ops.cuda.gpu_limits import GPU_TYPES
from sharpi.settings import GenerationRequest, RunConfig, SpeculationConfig

TINY = Shape(
    layers=2,
    hidden=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    experts=8,
    used=2,
    expert_hidden=256,
    vocabulary=2200,
)


@pytest.mark.parametrize("quant_type", sorted(GPU_TYPES), ids=lambda t: t.name)
def test_every_type_of_a_gpu_has_blocks(quant_type: QuantType) -> None:
    pool = block_pool(quant_type, 256, 1 << 14)
    assert 0 < pool.nbytes <= 1 << 14
    assert pool.nbytes % quant_type.block_bytes == 0


DECODED = [t for t in TYPES if t is not QuantType.Q1_0]  # by the gguf package


@pytest.mark.slow
@pytest.mark.parametrize("quant_type", DECODED, ids=lambda t: t.name)
def test_values_are_those_of_weights(quant_type: QuantType) -> None:
    pool = block_pool(quant_type, 256, 1 << 18)
    kind = gguf.GGMLQuantizationType(int(quant_type))
    blocks = pool.reshape(-1, quant_type.block_bytes)
    if quant_type.block_values == 1:
        blocks = pool.reshape(1, -1)
    values = gguf.quants.dequantize(blocks, kind)
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(256**-0.5, rel=0.45)  # two types have powers of two only
    assert abs(values.mean()) < 0.2 * values.std()


def test_a_model_may_have_a_head_that_drafts(tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    assert write_model(path, replace(TINY, predict_layers=1)) == path.stat().st_size
    speculation = SpeculationConfig(kinds=("mtp",), max_drafts=2)
    request = GenerationRequest(max_tokens=6, ignore_end=True)
    with load_engine(RunConfig(model=path, context_size=64, speculation=speculation)) as engine:
        assert engine.model_config.num_layers == 2
        list(engine.session().generate([5, 6, 7], request))
        assert engine.speculator.statistics.kinds["mtp"].num_checked > 0


def test_the_mix_is_that_of_q4_k_m(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    assert write_model(path, TINY) == path.stat().st_size
    with open_gguf(path) as file:
        kinds = {name: tensor.quant_type for name, tensor in file.tensors.items()}
        experts = file.tensors["blk.1.ffn_down_exps.weight"].data.reshape(8, -1)
    assert kinds["output.weight"] is kinds["blk.0.ffn_down_exps.weight"] is QuantType.Q6_K
    assert kinds["token_embd.weight"] is kinds["blk.1.ffn_down_exps.weight"] is QuantType.Q4_K
    assert len({expert.tobytes() for expert in experts}) == 8


RUN = [None, *(QuantType[name] for name in ("MXFP4", "BF16", "NVFP4", "Q1_0", "TQ2_0"))]


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("quant_type", RUN)
def test_it_runs(tmp_path: Path, quant_type: QuantType | None) -> None:
    path = tmp_path / "tiny.gguf"
    write_model(path, TINY, quant_type, pool_bytes=1 << 16)
    with load_engine(RunConfig(model=path, device="cpu")) as engine:
        assert engine.tokenizer.vocab_size == TINY.vocabulary
        assert engine.chat_format is not None
        ids = engine.tokenizer.encode("Once upon", add_bos=False, parse_special=False)
        logits = Sequence(engine.runner).extend(ids)
        assert np.isfinite(logits).all()
        assert 0.1 < logits.std() < 10


@pytest.mark.parametrize(("skew", "least", "most"), [(0.0, 0.0, 1.0), (0.5, 2.0, 100.0)])
def test_skewed_routers_reach_further_for_some_experts(
    tmp_path: Path, skew: float, least: float, most: float
) -> None:
    path = tmp_path / "tiny.gguf"
    write_model(path, replace(TINY, experts=64, skew=skew), pool_bytes=1 << 16)
    with open_gguf(path) as file:
        router = file.tensors["blk.0.ffn_gate_inp.weight"].data.view(np.float32).reshape(64, -1)
        norms = np.linalg.norm(router, axis=1)
    assert least < norms.max() / norms.min() - 1 < most


def test_a_vocabulary_has_room_for_its_tokens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2048 tokens"):
        write_model(tmp_path / "tiny.gguf", Shape(vocabulary=100))
