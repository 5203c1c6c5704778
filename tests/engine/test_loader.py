"""Files that are sound by themselves but whose parts do not fit together."""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from requantise import copy_metadata, write

from sharpi.engine import loader
from sharpi.engine.engine import Engine
from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.copied import TensorCopies
from sharpi.model.weights import load_weights

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references" / "data"


def with_rows(data: bytes, tensor: bytes, rows: int) -> bytes:
    """Returns the file `data` with fewer rows in a matrix's description, if it has the matrix."""
    described = re.search(struct.pack("<Q", len(tensor)) + tensor + struct.pack("<I", 2), data)
    if described is None:
        return data
    at = described.end() + 8  # behind the length of a row
    return data[:at] + struct.pack("<Q", rows) + data[at + 8 :]


def test_more_tokens_than_embeddings_are_refused(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    data = (REFERENCES / "llama.gguf").read_bytes()
    for tensor in (b"token_embd.weight", b"output.weight"):
        data = with_rows(data, tensor, 16)
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"m\.gguf: corrupt: \d+ tokens, but .* only 16$"):
        load(path)


@pytest.mark.parametrize(
    "name", ["qwen3moe", "llama", "gpt-oss", "deepseek2-lite", "qwen3next", "gemma4-e2b"]
)
def test_copied_weights_compute_the_same_bits(load: Callable[..., Engine], name: str) -> None:
    path, ids = REFERENCES / f"{name}.gguf", np.arange(3, 20, dtype=np.int32)
    copied = load(path, load="copy")
    assert not np.shares_memory(
        copied.file.tensors["token_embd.weight"].data,
        load(path).file.tensors["token_embd.weight"].data,
    )
    np.testing.assert_array_equal(copied.logits(ids), load(path).logits(ids))


@pytest.mark.parametrize("options", [{"load": "copy"}, {"moe_slots": 3}, {}], ids=str)
def test_weights_are_loaded_once(
    options: dict[str, object], load: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(
        loader, "load_weights", lambda *given: calls.append(given) or load_weights(*given)
    )
    load(REFERENCES / "qwen3moe.gguf", **options)
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{"load": "copy"}, {"moe_slots": 3}], ids=str)
def test_a_missing_tensor_is_found_before_weights_are_read(
    options: dict[str, object],
    load: Callable[..., Engine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = (REFERENCES / "qwen3moe.gguf").read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(data.replace(b"output_norm.weight", b"output_nome.weight"))
    monkeypatch.setattr(TensorCopies, "read", lambda *given: pytest.fail("weights are read"))
    with pytest.raises(ModelFileError, match=r"m\.gguf: tensor output_norm\.weight is missing"):
        load(path, **options)


def test_files_with_a_tensor_for_each_expert_are_refused_in_words(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    reader, target = GGUFReader(REFERENCES / "mixtral.gguf"), tmp_path / "2023.gguf"
    writer = GGUFWriter(target, "llama")
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        stem, is_stacked, suffix = tensor.name.partition("_exps")
        for index, part in enumerate(tensor.data if is_stacked else [tensor.data]):
            name = f"{stem}.{index}{suffix}" if is_stacked else tensor.name
            writer.add_tensor(name, np.array(part), raw_dtype=tensor.tensor_type)
    write(writer)
    with pytest.raises(UnsupportedModelError, match=r"2023\.gguf: each expert is a tensor"):
        load(target)


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
