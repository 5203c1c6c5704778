"""Tests of repack_moe: the experts together hold the dense feed-forward."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType
from gguf.gguf_reader import ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray
from repack_moe import SCALES_PER_BLOCK, repack, scale
from requantise import requantise

NUM_EXPERTS = 4


def values(tensor: ReaderTensor) -> NDArray[np.float32]:
    return dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.slow
@pytest.mark.parametrize("quant_type", SCALES_PER_BLOCK, ids=lambda each: each.name)
def test_experts_hold_the_dense_rows(tmp_path: Path, quant_type: GGMLQuantizationType) -> None:
    source = Path(__file__).parent / "data" / "llama-256.gguf"
    dense_path = requantise(source, tmp_path / "dense.gguf", quant_type)
    moe_path = repack(dense_path, tmp_path / "moe.gguf", NUM_EXPERTS)
    dense = {tensor.name: values(tensor) for tensor in GGUFReader(dense_path).tensors}
    moe = {tensor.name: values(tensor) for tensor in GGUFReader(moe_path).tensors}
    up, down = moe["blk.0.ffn_up_exps.weight"], moe["blk.0.ffn_down_exps.weight"]
    np.testing.assert_array_equal(np.concatenate(up), dense["blk.0.ffn_up.weight"])
    np.testing.assert_array_equal(
        np.concatenate(down, axis=1), NUM_EXPERTS * dense["blk.0.ffn_down.weight"]
    )
    assert not moe["blk.0.ffn_gate_inp.weight"].any()
    fields = GGUFReader(moe_path).fields
    assert fields["llama.feed_forward_length"].contents() == len(up[0])
    assert fields["llama.expert_used_count"].contents() == NUM_EXPERTS
    assert not any(name.endswith(("ffn_up.weight", "ffn_down.weight")) for name in moe)


def test_refuses_experts_that_cut_a_block(tmp_path: Path) -> None:
    source = Path(__file__).parent / "data" / "llama-256.gguf"
    dense = requantise(source, tmp_path / "dense.gguf", GGMLQuantizationType.Q4_1)
    with pytest.raises(ValueError, match="cut through blocks"):
        repack(dense, tmp_path / "moe.gguf", num_experts=16)


def test_refuses_a_scale_that_overflows() -> None:
    block = np.zeros((1, 34), np.uint8)
    block[:, :2] = np.array([60000], np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="no F16 number"):
        scale(block, GGMLQuantizationType.Q8_0, 8)
