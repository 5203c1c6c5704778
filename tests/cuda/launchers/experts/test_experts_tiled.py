"""Tiles on tensor cores give the bits of the kernels that take items one by one.

SHARPI_EVERY_ARCHITECTURE=1 takes every quant type.
"""

import os

import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import Array, item_products, random_routes, stacked_experts
from products import QUANTISED_ERROR, operand, random_tokens
from quant_weights import QUANTISED_TYPES

from sharpi.device.device import Device
from sharpi.device.launch import Launch
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped
from sharpi.ops.cuda.launchers.experts.experts_grouped import Groups, supports_tiles
from sharpi.ops.cuda.launchers.experts.route import group_routes
from sharpi.ops.cuda.matvec_layout import activation_bytes, lanes_of_row
from sharpi.ops.interface import Activation

EXPERTS, USED = 2, 1
TOKENS = 37  # the one expert has more items than a warp takes, the other fewer
# Types whose units differ in groups, offset, minimum or the order of columns; the others are like
# one of these.
KINDS = [
    *(QuantType.Q4_0, QuantType.Q4_1, QuantType.Q8_0, QuantType.MXFP4, QuantType.NVFP4),
    *(QuantType.Q2_K, QuantType.Q3_K, QuantType.Q4_K, QuantType.Q6_K, QuantType.IQ1_S),
]
TYPES = QUANTISED_TYPES if "SHARPI_EVERY_ARCHITECTURE" in os.environ else KINDS


def _named(value: object) -> str:
    return str(getattr(value, "name", value))


class Routes:
    """The routes of all tokens, and the lists by expert, on a device."""

    def __init__(self, device: Device, tokens: int = TOKENS, used: int = USED) -> None:
        self.ids, weights = random_routes(tokens, EXPERTS, used)
        self.ids[:] = np.where(np.arange(tokens)[:, None] % 4, self.ids[:1], self.ids)
        self.spans = upload(device, self.ids), upload(device, weights)
        self.lists = empty(device, 4 * (EXPERTS + 1)), empty(device, self.ids.nbytes)
        sizes = {"tokens": tokens, "used": used, "experts": EXPERTS}
        device.launch(group_routes(self.spans[0], *self.lists, **sizes))


def _is_tiled(launch: Launch) -> bool:
    return "tiled" in launch.kernel.file


def _products(device: Device, quant_type: QuantType, rows: int, columns: int) -> list[Array]:
    """Returns the products of tiles and of items, and in float64."""
    routes, tokens = Routes(device), random_tokens(TOKENS, columns)
    stacked = stacked_experts(device, quant_type, (EXPERTS, rows, columns), has_factors=True)
    x, outs = operand(device, tokens, 1), [empty(device, 4 * TOKENS * rows) for _ in range(2)]
    part, groups = stacked.part, Groups(*routes.lists, EXPERTS, USED, in_tiles=True)
    tiled = experts_grouped.product(x.span, groups, part, outs[0], planes=1)
    assert _is_tiled(tiled)
    device.launch(tiled)
    items = experts.Items(routes.spans[0], TOKENS, USED)
    device.launch(experts.product(x.span, items, part, outs[1], planes=1))
    found = [read(device, out, np.float32, (TOKENS, rows)) for out in outs]
    return [*found, item_products(stacked, routes.ids, x.seen)]


@pytest.mark.parametrize("quant_type", TYPES, ids=_named)
def test_product(device: Device, quant_type: QuantType) -> None:
    """A row has fewer units than a step of a tile, or just enough."""
    columns = quant_type.block_values * (3 if quant_type.block_values == 32 else 1)
    tiled, single, exact = _products(device, quant_type, 21, columns)
    np.testing.assert_array_equal(tiled, single)
    assert np.linalg.norm(tiled - exact) <= QUANTISED_ERROR * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("quant_type", "columns", "lanes"),
    [
        (QuantType.Q8_0, 736, 8),  # 23 units: the last lane has a turn less
        (QuantType.MXFP4, 1024, 16),
        (QuantType.Q6_K, 2048, 32),  # sums wait in shared memory
        (QuantType.Q4_K, 4096, 32),
        (QuantType.Q5_K, 768, 4),
    ],
    ids=_named,
)
def test_every_number_of_lanes(
    device: Device, quant_type: QuantType, columns: int, lanes: int
) -> None:
    assert lanes_of_row(quant_type, columns) == lanes
    tiled, single, *_ = _products(device, quant_type, 3, columns)
    np.testing.assert_array_equal(tiled, single)


def _gate_ups(
    device: Device, quant_type: QuantType, rows: int, columns: int, hidden_planes: int
) -> list[Array]:
    """Returns the results of tiles and of items; two experts for each token."""
    routes = Routes(device, used=2)
    x = operand(device, random_tokens(TOKENS, columns), 1).span
    pair = [
        stacked_experts(device, quant_type, (EXPERTS, rows, columns), seed).part for seed in (1, 2)
    ]
    row = activation_bytes(rows, hidden_planes) or 4 * rows
    outs = [empty(device, TOKENS * 2 * row) for _ in range(2)]
    also = {"activation": Activation.SILU, "planes": 1, "hidden_planes": hidden_planes}
    weights, groups = routes.spans[1], Groups(*routes.lists, EXPERTS, used=2, in_tiles=True)
    tiled = experts_grouped.gate_up(x, groups, *pair, outs[0], input_weights=weights, **also)
    assert _is_tiled(tiled)
    device.launch(tiled)
    items = experts.Items(routes.spans[0], TOKENS, 2)
    device.launch(experts.gate_up(x, items, *pair, outs[1], input_weights=weights, **also))
    return [read(device, out, np.uint8, (out.num_bytes,)) for out in outs]


@pytest.mark.parametrize(
    ("quant_type", "columns"),
    [
        (QuantType.Q6_K, 256),
        (QuantType.Q4_K, 768),  # three units a lane: two at once, and one more
        (QuantType.Q8_0, 736),  # the last lane has two, the others three
        (QuantType.MXFP4, 64),  # fewer units than lanes
    ],
    ids=_named,
)
def test_gate_up(device: Device, quant_type: QuantType, columns: int) -> None:
    np.testing.assert_array_equal(*_gate_ups(device, quant_type, 32, columns, 1))


def test_floats_of_rows_that_fill_no_tile(device: Device) -> None:
    tiled, single = _gate_ups(device, QuantType.Q4_K, 45, 256, 0)
    np.testing.assert_array_equal(tiled, single)
    assert np.isfinite(tiled.view(np.float32)).all()


def test_floats_do_not_go_to_tiles() -> None:
    """Activations that are exact or of two planes, and float weights, use kernels without tiles."""
    assert supports_tiles(QuantType.Q4_K, 1)
    for quant_type, planes in ((QuantType.Q4_K, 0), (QuantType.Q4_K, 2), (QuantType.F16, 1)):
        assert not supports_tiles(quant_type, planes)
