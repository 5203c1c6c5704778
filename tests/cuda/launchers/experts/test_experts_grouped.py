"""Many tokens by expert give the bits that few tokens by item give."""

from dataclasses import dataclass

import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import Array, StackedExperts, random_routes, stacked_experts
from products import operand, random_tokens
from quant_weights import FLOAT_TYPES

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.launchers.experts.experts_grouped import Groups
from sharpi.ops.cuda.launchers.experts.route import group_routes
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.ops.interface import Activation

TOKENS, EXPERTS, USED = 11, 3, 2
AT_ONCE = 8  # items of an expert that a block has at once
# One of each kind of block; test_experts.py has all types.
USUAL = [
    *(QuantType.F16, QuantType.BF16, QuantType.Q8_0, QuantType.Q5_1, QuantType.MXFP4),
    *(QuantType.IQ4_NL, QuantType.Q4_K, QuantType.Q6_K, QuantType.IQ3_XXS),
]


@dataclass(frozen=True)
class Routes:
    """The routes of all tokens, and the lists by expert, on a device."""

    ids: Span
    weights: Span
    offsets: Span
    items: Span

    @property
    def listed(self) -> Items:
        return Items(self.ids, TOKENS, USED)

    @property
    def groups(self) -> Groups:
        return Groups(self.offsets, self.items, EXPERTS, USED)


def _routes(device: Device) -> Routes:
    ids, weights = random_routes(TOKENS, EXPERTS, USED)
    assert max(np.bincount(ids.ravel())) > AT_ONCE >= min(np.bincount(ids.ravel()))
    offsets, items = empty(device, 4 * (EXPERTS + 1)), empty(device, ids.nbytes)
    routes = Routes(upload(device, ids), upload(device, weights), offsets, items)
    sizes = {"tokens": TOKENS, "used": USED, "experts": EXPERTS}
    device.launch(group_routes(routes.ids, offsets, items, **sizes))
    return routes


def _columns(quant_type: QuantType) -> int:
    return max(64, quant_type.block_values)


def _planes(quant_type: QuantType) -> tuple[int, ...]:
    return (0,) if quant_type in FLOAT_TYPES else (0, 1, 2)


def _gate_ups(
    device: Device,
    x: Span,
    expert_weights: tuple[StackedExperts, StackedExperts],
    planes: int,
    hidden_planes: int,
) -> list[Array]:
    """Returns the results of the grouped launch and of the other."""
    routes, rows = _routes(device), expert_weights[0].dense.shape[1]
    row = activation_bytes(rows, hidden_planes) or 4 * rows
    grouped, single = (empty(device, TOKENS * USED * row) for _ in range(2))
    parts = expert_weights[0].part, expert_weights[1].part
    kind = {"activation": Activation.SILU, "planes": planes, "hidden_planes": hidden_planes}
    device.launch(experts_grouped.gate_up(x, routes.groups, *parts, grouped, **kind))
    device.launch(experts.gate_up(x, routes.listed, *parts, single, **kind))
    return [read(device, span, np.uint8, (span.num_bytes,)) for span in (grouped, single)]


@pytest.mark.parametrize("quant_type", USUAL, ids=lambda t: t.name)
def test_gate_up(device: Device, quant_type: QuantType) -> None:
    shape = EXPERTS, 32, _columns(quant_type)
    expert_weights = tuple(
        stacked_experts(device, quant_type, shape, seed, has_factors=True) for seed in (1, 2)
    )
    for planes in _planes(quant_type):
        x = operand(device, random_tokens(TOKENS, shape[2]), planes).span
        np.testing.assert_array_equal(*_gate_ups(device, x, expert_weights, planes, 1))


def test_floats_of_a_tile_that_is_not_whole(device: Device) -> None:
    shape = EXPERTS, 45, 64
    expert_weights = tuple(stacked_experts(device, QuantType.Q8_0, shape, seed) for seed in (1, 2))
    x = operand(device, random_tokens(TOKENS, 64), 1).span
    grouped, single = _gate_ups(device, x, expert_weights, 1, 0)
    np.testing.assert_array_equal(grouped, single)
    assert np.isfinite(grouped.view(np.float32)).all()


@pytest.mark.parametrize("quant_type", USUAL, ids=lambda t: t.name)
def test_down(device: Device, quant_type: QuantType) -> None:
    columns, rows, routes = _columns(quant_type), 21, _routes(device)
    stacked = stacked_experts(device, quant_type, (EXPERTS, rows, columns))
    residual = upload(device, random_tokens(TOKENS, rows))
    for planes in _planes(quant_type):
        hidden = operand(device, random_tokens(TOKENS * USED, columns), planes).span
        values, *outs = (empty(device, 4 * n * rows) for n in (TOKENS * USED, TOKENS, TOKENS))
        groups, part = routes.groups, stacked.part
        device.launch(experts_grouped.down(hidden, groups, part, values, planes=planes))
        totals = [
            RoutedSum(routes.listed, rows, out, routes.weights, residual, 0.7) for out in outs
        ]
        device.launch(experts_grouped.merge(values, totals[0]))
        device.launch(experts.down(hidden, part, totals[1], planes=planes))
        grouped, single = (read(device, out, np.float32, (TOKENS, rows)) for out in outs)
        np.testing.assert_array_equal(grouped, single)


def test_products_of_one_half(device: Device) -> None:
    routes, rows = _routes(device), 21
    stacked = stacked_experts(device, QuantType.Q4_K, (EXPERTS, rows, 256), has_factors=True)
    x = operand(device, random_tokens(TOKENS, 256), 1).span
    outs = [empty(device, 4 * TOKENS * USED * rows) for _ in range(2)]
    also, part = {"planes": 1, "input_weights": routes.weights}, stacked.part
    device.launch(experts_grouped.product(x, routes.groups, part, outs[0], **also))
    device.launch(experts.product(x, routes.listed, part, outs[1], **also))
    grouped, single = (read(device, out, np.float32, (TOKENS * USED, rows)) for out in outs)
    np.testing.assert_array_equal(grouped, single)
    assert np.isfinite(grouped).all()
