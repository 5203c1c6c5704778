"""Hyperparameters and unused tensors: errors name file and key, and each kind is told in a line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.feed_forward.feed_forward_settings import LayerActivations, read_activations
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.weights import notes_on_extra
from sharpi.ops.interface import Activation

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


REFERENCES = Path(__file__).parents[1] / "references" / "data"
SILU, TO_7, TO_16 = Activation.SILU, Activation.LIMITED_SILU_7, Activation.LIMITED_SILU_16


def read(limits: list[float] | None, activation: Activation = SILU) -> tuple[LayerActivations, ...]:
    values = {"step35.block_count": 3, "step35.nextn_predict_layers": 1}
    values["step35.embedding_length"] = 64
    arrays = {} if limits is None else {"step35.swiglu_clamp_exp": np.array(limits, np.float32)}
    metadata = Metadata(Path("m.gguf"), values | arrays)
    return read_activations(HyperparameterReader(metadata, "step35"), activation)


def test_each_layer_has_its_own() -> None:
    with open_gguf(REFERENCES / "step35.gguf") as file:
        layers = read_config(file).feed_forward.layer_activations
    assert layers == tuple(
        LayerActivations(*pair) for pair in ((SILU, SILU), (TO_7, TO_16), (SILU, SILU))
    )


def test_layers_of_heads_have_none_unless_the_file_says_so() -> None:
    assert [each.routed for each in read([0.0, 7.0])] == [SILU, TO_7, SILU]
    assert [each.routed for each in read([0.0, 7.0, 16.0])] == [SILU, TO_7, TO_16]
    assert [each.dense for each in read([0.0, 7.0, 16.0])] == [SILU] * 3
    assert read(None, Activation.GELU) == (LayerActivations(*[Activation.GELU] * 2),) * 3


@pytest.mark.parametrize("limits", [[0.0, 5.0], [-7.0, 0.0], [float("nan"), 0.0]])
def test_other_limits_are_refused(limits: list[float]) -> None:
    with pytest.raises(ModelFileError, match=r"step35\.swiglu_clamp_exp has .*; 0 \(none\), 7 and"):
        read(limits)


def test_limits_need_silu_and_a_value_for_each_layer() -> None:
    for limits, activation in (([7.0], SILU), ([7.0, 7.0], Activation.GELU)):
        with pytest.raises(ModelFileError, match="needs silu and a value for each layer"):
            read(limits, activation)


def test_nothing_to_say() -> None:
    assert notes_on_extra((), 3) == ()


def test_known_kinds_have_a_line_each() -> None:
    names = ("blk.3.attn_q.weight", "blk.3.nextn.eh_proj.weight", "v.blk.0.ln1.weight", "mm.0.bias")
    assert notes_on_extra(names, 3) == (
        "multi-token prediction (MTP), not used: 2 tensors",
        "images or audio, not used: 2 tensors",
    )


def test_unknown_tensors_are_named() -> None:
    names = tuple(f"blk.{i}.odd" for i in range(5))
    (note,) = notes_on_extra(names, 9)
    assert note.startswith("unknown to this architecture, not used: 5 tensors, blk.0.odd, ")
    assert note.endswith("blk.3.odd, ...")
