"""Stacked matrices of random experts on a device, and a feed-forward over them in float64."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from device_arrays import upload
from quant_weights import as_floats, random_weights
from reference_numbers import gated

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.interface import Activation

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StackedExperts:
    """`dense` (experts, rows, columns), `bias` (experts, rows)."""

    part: GpuStackedMatrix
    dense: Array = field(repr=False)
    bias: Array = field(repr=False)


def stacked_experts(
    device: Device,
    quant_type: QuantType,
    shape: tuple[int, int, int],
    seed: int = 0,
    has_bias: bool = True,
    has_factors: bool = False,
) -> StackedExperts:
    """Returns random experts of `shape`; the second half lies in a separate memory."""
    experts, rows, columns = shape
    rng = np.random.default_rng([seed, *shape])
    data = random_weights(quant_type, experts * rows, columns, seed).reshape(experts, -1)
    bias = rng.standard_normal((experts, rows)).astype(np.float32) * has_bias
    cut = experts // 2
    pieces = [upload(device, data[cut:]), upload(device, data[:cut])]
    table = [pieces[1].address + e * data.shape[1] for e in range(cut)]
    table += [pieces[0].address + e * data.shape[1] for e in range(experts - cut)]
    factors = rng.uniform(0.5, 2, experts).astype(np.float32)
    part = GpuStackedMatrix(
        *(quant_type, rows, columns),
        upload(device, np.array(table, np.uint64)),
        upload(device, bias) if has_bias else None,
        tuple(piece for piece in pieces if piece.num_bytes),
        upload(device, factors) if has_factors else None,
    )
    dense = as_floats(quant_type, data.reshape(experts * rows, -1)).reshape(shape)
    if has_factors:
        dense = dense * factors[:, None, None]
    return StackedExperts(part, dense, bias.astype(np.float64))


def random_routes(tokens: int, experts: int, used: int) -> tuple[Array, Array]:
    """ids int32 and weights float32, (tokens, used)."""
    rng = np.random.default_rng([tokens, experts, used])
    ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)
    return ids, rng.uniform(0.1, 1, (tokens, used)).astype(np.float32)


def item_products(stacked: StackedExperts, ids: Array, x: Array) -> Array:
    """W x + bias of each item, (tokens * used, rows); x has a row a token, or a row an item."""
    rows = np.repeat(x, ids.size // len(x), axis=0)
    pairs = zip(ids.reshape(-1), rows, strict=True)
    return np.stack([stacked.dense[e] @ row + stacked.bias[e] for e, row in pairs])


def hidden_values(
    activation: Activation, gate: StackedExperts, up: StackedExperts, ids: Array, x: Array
) -> Array:
    """act(gate x + bias) * (up x + bias) of each item, (tokens * used, rows)."""
    with np.errstate(over="ignore"):  # in the sigmoid of far below zero
        values = gated(activation, item_products(gate, ids, x), item_products(up, ids, x))
    return np.asarray(values, np.float64)
