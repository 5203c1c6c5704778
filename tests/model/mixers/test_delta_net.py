"""Qwen3-Next: which layers have a delta net, and projections that are joint in its first files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from msgspec.structs import replace
from reference_numbers import dequantise
from reference_ops import ReferenceOps

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.recurrent import DeltaNet, DeltaNetSettings
from sharpi.model.mixers.rope import Angles
from sharpi.model.weights import load_weights
from sharpi.ops.interface import Matrix

QWEN3_NEXT = Path(__file__).parents[2] / "references" / "data" / "qwen3next.gguf"


def config_with(changes: dict[str, Any]) -> ModelConfig:
    """The configuration of the reference file with other values of its keys; None drops a key."""
    with open_gguf(QWEN3_NEXT) as file:
        values, tensors = dict(file.metadata), dict(file.tensors)
    for key, value in changes.items():
        values[f"qwen3next.{key}"] = value
        if value is None:
            del values[f"qwen3next.{key}"]
    changed = SimpleNamespace(metadata=Metadata(QWEN3_NEXT, values), tensors=tensors)
    return read_config(changed)  # type: ignore[arg-type]


def test_layers_that_predict_further_tokens_are_left_out() -> None:
    flags = np.array([True, False, True, False])
    counts = {"block_count": 4, "nextn_predict_layers": 1}
    config = config_with(counts | {"attention.recurrent_layers": flags})
    kinds = [type(mixer) for mixer in config.mixers]
    assert kinds == [DeltaNetSettings, AttentionSettings, DeltaNetSettings]


def test_without_flags_every_fourth_layer_attends() -> None:
    absent = {"attention.recurrent_layers": None, "full_attention_interval": None}
    config = config_with(absent | {"block_count": 8})
    assert [shape.layer for shape in config.attention] == [3, 7]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssm.group_count", 4),
        ("ssm.time_step_rank", 5),
        ("ssm.inner_size", 100),
        ("ssm.state_size", 257),
        ("ssm.conv_kernel", 17),
        ("ssm.conv_kernel", None),
    ],
)
def test_sizes_that_do_not_fit_are_named(key: str, value: int | None) -> None:
    with pytest.raises(ModelFileError, match=f"qwen3next.{key}"):
        config_with({key: value})


def joint(net: DeltaNet) -> DeltaNet:
    """The same layer with queries, keys, values and gate in one matrix, key head by key head."""
    shape, (qkv, gate) = net.settings.shape, net.inputs
    keys = shape.num_key_heads * shape.key_dim
    q, k, v = np.split(dequantise(qkv), [keys, 2 * keys])
    parts = [x.reshape(shape.num_key_heads, -1, qkv.columns) for x in (q, k, v, dequantise(gate))]
    rows = np.concatenate(parts, axis=1).reshape(-1, qkv.columns)
    data = quantize(rows, GGMLQuantizationType.F16).view(np.uint8).reshape(-1)
    return replace(net, inputs=(Matrix("ssm_in", qkv.quant_type, *rows.shape, data),))


def test_joint_projections_give_the_same() -> None:
    file = open_gguf(QWEN3_NEXT)
    net = load_weights(file, read_config(file)).layers[0].mixer
    assert isinstance(net, DeltaNet)
    ops = ReferenceOps()
    ops.begin([0] * 9, 0, ())
    h = np.random.default_rng(1).standard_normal((9, 32)).astype(np.float32)
    angles = Angles(ops, None)
    assert np.allclose(joint(net).mix(ops, h, angles), net.mix(ops, h, angles), atol=1e-5)
