"""For a file that is no language model, the error says what it is instead."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.file_kind import kind_of, require_model
from sharpi.gguf.file_summary import summarise
from sharpi.gguf.reader import open_gguf

Keys = dict[str, str | int | list[str]]


def write(path: Path, architecture: str, keys: Keys, *, tensors: bool = True) -> Path:
    writer = GGUFWriter(path, architecture)
    for key, value in keys.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_array(key, value)
    if tensors:
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "keys", "kind", "words"),
    [
        ("clip", {"general.type": "mmproj"}, "mmproj", "an image projector (mmproj)"),
        ("clip", {}, "mmproj", "name the language model that it belongs to"),
        ("llama", {"general.type": "adapter"}, "adapter", "a LoRA adapter"),
        ("llama", {"adapter.type": "lora"}, "adapter", "it changes a model"),
        ("imatrix", {"general.type": "imatrix"}, "imatrix", "an importance matrix (imatrix)"),
        ("controlvector", {}, "controlvector", "a control vector"),
        ("bert", {}, "embedding", "an embedding model"),
        ("qwen3", {"qwen3.pooling_type": 3}, "embedding", "it cannot write text"),
    ],
)
def test_other_kinds(tmp_path: Path, architecture: str, keys: Keys, kind: str, words: str) -> None:
    with open_gguf(write(tmp_path / "it.gguf", architecture, keys)) as file:
        assert kind_of(file) == summarise(file).kind == kind
        with pytest.raises(UnsupportedModelError) as caught:
            require_model(file)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/it.gguf: this is a")
    assert words in message
    assert "\n" not in message


def test_a_vocabulary(tmp_path: Path) -> None:
    path = write(tmp_path / "v.gguf", "llama", {"tokenizer.ggml.tokens": ["a"]}, tensors=False)
    with open_gguf(path) as file, pytest.raises(UnsupportedModelError, match="sharpi tokenize"):
        require_model(file)


@pytest.mark.parametrize("keys", [{}, {"general.type": "model"}, {"llama.pooling_type": 0}])
def test_a_model(tmp_path: Path, keys: Keys) -> None:
    with open_gguf(write(tmp_path / "it.gguf", "llama", keys)) as file:
        assert kind_of(file) == "model"
        require_model(file)


def test_the_model_beside_a_projector_is_named(tmp_path: Path) -> None:
    (tmp_path / "gemma.gguf").touch()
    write(tmp_path / "a-lora.gguf", "llama", {"general.type": "adapter"})
    with (
        open_gguf(write(tmp_path / "mmproj-gemma.gguf", "clip", {})) as file,
        pytest.raises(UnsupportedModelError, match=r"beside it: gemma\.gguf$"),
    ):
        require_model(file)
