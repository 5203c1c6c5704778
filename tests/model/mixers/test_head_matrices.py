"""Older files, which store the matrices for keys and values of latent attention as one tensor."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from reference_ops import ReferenceOps
from requantise import copy_metadata, write

from sharpi.gguf.copied import TensorCopies
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.transformer import Transformer
from sharpi.model.weights import load_weights

REFERENCES = Path(__file__).parents[2] / "references" / "data"
HEADS, PLAIN, ROTATED, VALUE, LATENT = 4, 24, 16, 20, 40


def undivided(case: str, target: Path) -> Path:
    """The case as an older converter wrote it: one matrix, and the sizes of single heads."""
    reader = GGUFReader(REFERENCES / f"{case}.gguf")
    writer = GGUFWriter(target, "deepseek2")
    sizes = ("key_length", "value_length", "key_length_mla", "value_length_mla")
    copy_metadata(reader, writer, *(f"deepseek2.attention.{size}" for size in sizes))
    writer.add_key_length(PLAIN + ROTATED)
    writer.add_value_length(VALUE)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in tensors.items():
        if "attn_v_b" in name:
            continue
        data = np.array(tensor.data)
        if "attn_k_b" in name:
            values = np.array(tensors[name.replace("attn_k_b", "attn_v_b")].data)
            data = np.concatenate([data.transpose(0, 2, 1), values], axis=1).reshape(-1, LATENT)
            name = name.replace("attn_k_b", "attn_kv_b")
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)
    write(writer)
    return target


@pytest.mark.parametrize("case", ["deepseek2-lite", "deepseek3"])
def test_an_undivided_matrix_is_taken_apart(case: str, tmp_path: Path) -> None:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids, expected = arrays["tokens"].tolist(), arrays["logits"]
    with open_gguf(undivided(case, tmp_path / "old.gguf")) as file:
        config = read_config(file)
        weights = load_weights(file, config)
        assert weights.unused == ()
        assert {(s.num_kv_heads, s.key_dim) for s in config.attention} == {(1, LATENT + ROTATED)}
        ops = ReferenceOps()
        ops.begin(ids, 0, range(len(ids)))
        logits = Transformer(config, weights, ops).step()
    assert np.linalg.norm(logits - expected) < 1e-4 * np.linalg.norm(expected)


def test_copies_are_not_read_to_take_a_matrix_apart(tmp_path: Path) -> None:
    """They are filled after the weights are loaded, so the matrix comes from the file."""
    with open_gguf(undivided("deepseek3", tmp_path / "old.gguf")) as file:
        config = read_config(file)
        copies = TensorCopies(file.parts, [*file.tensors.values()])
        weights = [load_weights(each, config) for each in (file, file.with_data(copies.tensors))]
        for expected, found in zip(*(each.layers for each in weights), strict=True):
            for name in ("keys", "values"):
                heads = [getattr(layer.mixer.matrices, name) for layer in (expected, found)]
                assert heads[0].data.any()
                assert np.array_equal(heads[0].data, heads[1].data)
