"""Delta nets whose projections are joint in the file, as the first Qwen3-Next files had them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.delta_net import DeltaNet
from sharpi.model.rope import Angles
from sharpi.model.weights import load_weights
from sharpi.ops.interface import Matrix
from sharpi.ops.reference import ReferenceOps
from sharpi.ops.reference_numbers import dequantise

QWEN3_NEXT = Path(__file__).parents[1] / "references" / "qwen3next.gguf"


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
