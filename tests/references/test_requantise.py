"""Tests of requantise: what is rewritten, what is kept, what is refused."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from requantise import WRITABLE_TYPES, requantise

FOLDER = Path(__file__).parent / "data"


@pytest.mark.slow
@pytest.mark.parametrize("quant_type", WRITABLE_TYPES, ids=lambda each: each.name)
def test_rewrites_matrices_and_keeps_the_rest(
    tmp_path: Path, quant_type: GGMLQuantizationType
) -> None:
    source = FOLDER / "qwen2moe.gguf"
    target = requantise(source, tmp_path / "target.gguf", quant_type)
    before = {tensor.name: tensor for tensor in GGUFReader(source).tensors}
    after = {tensor.name: tensor for tensor in GGUFReader(target).tensors}
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        is_matrix = before[name].tensor_type == GGMLQuantizationType.F16
        assert tensor.tensor_type == (quant_type if is_matrix else before[name].tensor_type)
        expected = dequantize(before[name].data, before[name].tensor_type)
        error = np.linalg.norm(dequantize(tensor.data, tensor.tensor_type) - expected)
        assert error <= 0.12 * np.linalg.norm(expected)


def test_matrices_of_some_names_have_other_types(tmp_path: Path) -> None:
    q8_0, bf16 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.BF16
    target = requantise(FOLDER / "qwen2moe.gguf", tmp_path / "m.gguf", q8_0, {"_up_exps.": bf16})
    types = {t.name: t.tensor_type for t in GGUFReader(target).tensors if "_exps." in t.name}
    assert {kind for name, kind in types.items() if "_up_" in name} == {bf16}
    assert {kind for name, kind in types.items() if "_up_" not in name} == {q8_0}


def test_copies_every_key(tmp_path: Path) -> None:
    source = FOLDER / "gemma3-linear.gguf"
    target = requantise(source, tmp_path / "target.gguf", GGMLQuantizationType.Q8_0)
    before, after = GGUFReader(source).fields, GGUFReader(target).fields
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name].contents() != after[name].contents()}
    assert changed == {"general.file_type"}


def test_refuses_a_type_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot quantise to Q4_K"):
        requantise(FOLDER / "llama.gguf", tmp_path / "target.gguf", GGMLQuantizationType.Q4_K)
