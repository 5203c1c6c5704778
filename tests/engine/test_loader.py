"""Files that are sound by themselves but whose parts do not fit together."""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sharpi.engine import loader
from sharpi.engine.engine import Engine
from sharpi.errors import ModelFileError
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
