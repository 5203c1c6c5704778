"""Invalid hyperparameters: every error names the file and the key."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.model.config import ModelConfig, read_config

SOUND = {
    "block_count": 2,
    "embedding_length": 64,
    "context_length": 128,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "expert_count": 8,
    "expert_used_count": 2,
}


def config(changes: dict[str, Any]) -> ModelConfig:
    metadata = {f"qwen3moe.{key}": value for key, value in (SOUND | changes).items()}
    metadata["general.architecture"] = "qwen3moe"
    file = SimpleNamespace(metadata=Metadata(Path("m.gguf"), metadata), tensors={})
    return read_config(file)  # type: ignore[arg-type]


def test_sizes_of_a_sound_file() -> None:
    sound = config({})
    assert (sound.num_layers, sound.hidden_size, sound.num_experts) == (2, 64, 8)
    assert [shape.key_dim for shape in sound.attention] == [16, 16]
    assert sound.rope_width == 16


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 1 << 31),
        ("embedding_length", 0),
        ("context_length", 0),
        ("attention.head_count", 0),
        ("attention.head_count", -4),
        ("attention.head_count_kv", 0),
        ("attention.key_length", 7),
        ("attention.key_length", 1 << 31),
        ("attention.layer_norm_rms_epsilon", -1.0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", -1.0),
        ("rope.dimension_count", 7),
        ("rope.dimension_count", 18),
        ("rope.dimension_count", -2),
        ("rope.scaling.factor", -2.0),
        ("attention.sliding_window", -5),
        ("expert_used_count", 0),
        ("expert_used_count", 9),
        ("expert_gating_func", 9),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_key(key: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=rf"^m\.gguf: qwen3moe\.{key} "):
        config({key: value})


def test_heads_that_cannot_share_are_refused() -> None:
    with pytest.raises(ModelFileError, match=r"^m\.gguf: layer 0: 4 heads cannot share 3 KV heads"):
        config({"attention.head_count_kv": 3})
