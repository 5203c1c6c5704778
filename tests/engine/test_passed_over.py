"""MTP layers, projectors and other unused tensors in a file: the model runs without them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from requantise import copy_metadata, write

from sharpi.engine.engine import Engine

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references" / "data"
EXTRA = ("blk.3.attn_norm.weight", "blk.3.nextn.eh_proj.weight", "v.patch_embd.weight", "odd.one")


@pytest.fixture
def with_extra(tmp_path: Path) -> Path:
    """Writes GLM-4.5 with a fourth layer that its keys declare as predicting, and more tensors."""
    reader, target = GGUFReader(REFERENCES / "glm4moe.gguf"), tmp_path / "extra.gguf"
    writer = GGUFWriter(target, "glm4moe")
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for name in EXTRA:
        writer.add_tensor(name, np.zeros((4, 32), np.float32))
    write(writer)
    return target


@pytest.mark.parametrize("options", [{}, {"load": "copy"}, {"moe_slots": 3}], ids=str)
def test_extra_tensors_are_passed_over_with_a_line_each(
    options: dict[str, object], with_extra: Path, load: Callable[..., Engine]
) -> None:
    with np.load(REFERENCES / "glm4moe.npz") as arrays:
        ids = arrays["tokens"].astype(np.int32)
    engine = load(with_extra, **options)
    assert [note for note in engine.notes if "tensor" in note] == [
        "multi-token prediction (MTP), not used: 2 tensors",
        "images or audio, not used: 1 tensor",
        "unknown to this architecture, not used: 1 tensor, odd.one",
    ]
    assert np.array_equal(engine.logits(ids), load("glm4moe", **options).logits(ids))
