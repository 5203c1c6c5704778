from dataclasses import dataclass

import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import (
    Array,
    StackedExperts,
    hidden_values,
    item_products,
    random_routes,
    stacked_experts,
)
from products import EXACT_ERROR, QUANTISED_ERROR, operand, quantised_values, random_tokens
from quant_weights import FLOAT_TYPES, TYPES

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.ops.interface import Activation

EXPERTS, USED, TOKENS, ROWS = 4, 3, 2, 64


@dataclass(frozen=True)
class Case:
    """A launch's sizes and arguments."""

    planes: int
    columns: int
    ids: Array
    gate: StackedExperts
    up: StackedExperts

    def items(self, device: Device) -> Items:
        return Items(upload(device, self.ids), *self.ids.shape)


def _case(
    device: Device,
    quant_type: QuantType,
    planes: int,
    rows: int = ROWS,
    tokens: int = TOKENS,
    has_factors: bool = False,
) -> Case:
    columns = 256 if quant_type.block_values > 32 else 96
    shape = EXPERTS, rows, columns
    expert_weights = (
        stacked_experts(device, quant_type, shape, seed, has_factors=has_factors) for seed in (1, 2)
    )
    return Case(planes, columns, random_routes(tokens, EXPERTS, USED)[0], *expert_weights)


def _planes(quant_type: QuantType) -> tuple[int, ...]:
    return (0,) if quant_type in FLOAT_TYPES else (0, 1, 2)


def _close(out: Array, expected: Array, planes: int) -> None:
    """Compares products of products, in which an error of one factor is one of the result."""
    error = np.linalg.norm(out - expected) / np.linalg.norm(expected)
    assert error < (QUANTISED_ERROR if planes else 4 * EXACT_ERROR), error


def _gate_up(device: Device, case: Case, x: Span, activation: Activation) -> Array:
    items = case.ids.size
    rows = case.gate.dense.shape[1]
    hidden = empty(device, 4 * items * rows)
    launch = experts.gate_up(
        *(x, case.items(device), case.gate.part, case.up.part, hidden),
        activation=activation,
        hidden_planes=0,
        planes=case.planes,
    )
    device.launch(launch)
    return read(device, hidden, np.float32, (items, rows))


@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_gate_up(device: Device, quant_type: QuantType) -> None:
    for planes in _planes(quant_type):
        case = _case(device, quant_type, planes, has_factors=True)
        x = operand(device, random_tokens(TOKENS, case.columns), planes)
        out = _gate_up(device, case, x.span, Activation.IDENTITY)
        expected = hidden_values(Activation.IDENTITY, case.gate, case.up, case.ids, x.seen)
        _close(out, expected, planes)


@pytest.mark.parametrize("activation", list(Activation))
def test_activations(device: Device, activation: Activation) -> None:
    """With 33 rows the last tile is not whole."""
    case = _case(device, QuantType.Q8_0, 0, rows=33)
    x = operand(device, 0.02 * random_tokens(TOKENS, case.columns), 0)
    out = _gate_up(device, case, x.span, activation)
    expected = hidden_values(activation, case.gate, case.up, case.ids, x.seen)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("hidden_planes", [1, 2])
def test_hidden_values_are_rounded(device: Device, hidden_planes: int) -> None:
    case = _case(device, QuantType.Q4_K, 1)
    x = operand(device, random_tokens(TOKENS, case.columns), 1).span
    floats = _gate_up(device, case, x, Activation.SILU)
    quantised = empty(device, case.ids.size * activation_bytes(ROWS, hidden_planes))
    launch = experts.gate_up(
        *(x, case.items(device), case.gate.part, case.up.part, quantised),
        activation=Activation.SILU,
        hidden_planes=hidden_planes,
        planes=case.planes,
    )
    device.launch(launch)
    seen = quantised_values(device, quantised, case.ids.size, ROWS, hidden_planes)
    np.testing.assert_array_equal(seen, operand(device, floats, hidden_planes).seen)


@pytest.mark.parametrize(
    ("quant_type", "planes"), [(QuantType.Q4_K, 1), (QuantType.Q8_0, 2), (QuantType.BF16, 0)]
)
def test_products_and_activation_apart(device: Device, quant_type: QuantType, planes: int) -> None:
    case = _case(device, quant_type, planes, rows=33)
    x = operand(device, random_tokens(TOKENS, case.columns), planes)
    fused = _gate_up(device, case, x.span, Activation.GELU_TANH)
    halves = []
    for stacked in (case.gate, case.up):
        out = empty(device, fused.nbytes)
        device.launch(experts.product(x.span, case.items(device), stacked.part, out, planes=planes))
        halves.append(out)
    hidden = empty(device, fused.nbytes)
    sizes = {"items": case.ids.size, "rows": 33, "hidden_planes": 0}
    device.launch(experts.activate(*halves, hidden, activation=Activation.GELU_TANH, **sizes))
    np.testing.assert_array_equal(read(device, hidden, np.float32, fused.shape), fused)


def test_up_alone(device: Device) -> None:
    up = random_tokens(3, 40)
    hidden = empty(device, up.nbytes)
    sizes = {"items": 3, "rows": 40, "hidden_planes": 0}
    device.launch(
        experts.activate(upload(device, up), None, hidden, activation=Activation.RELU2, **sizes)
    )
    out = read(device, hidden, np.float32, up.shape)
    np.testing.assert_array_equal(out, np.maximum(up, 0) ** 2)


def test_weighed_inputs(device: Device) -> None:
    case = _case(device, QuantType.Q6_K, 0, rows=33, has_factors=True)
    x = operand(device, random_tokens(TOKENS, case.columns), 0)
    weights = random_routes(TOKENS, EXPERTS, USED)[1]
    out = empty(device, 4 * case.ids.size * 33)
    launch = experts.product(
        *(x.span, case.items(device), case.up.part, out),
        planes=0,
        input_weights=upload(device, weights),
    )
    device.launch(launch)
    weighed = np.repeat(x.seen, USED, axis=0) * weights.reshape(-1, 1)
    expected = item_products(case.up, case.ids, weighed)
    _close(read(device, out, np.float32, expected.shape), expected, 0)


@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_down(device: Device, quant_type: QuantType) -> None:
    rows = 37
    for planes in _planes(quant_type):
        case = _case(device, quant_type, planes, rows=rows, has_factors=True)
        ids, weights = random_routes(TOKENS, EXPERTS, USED)
        hidden = operand(device, random_tokens(TOKENS * USED, case.columns), planes)
        residual = random_tokens(TOKENS, rows)
        out = upload(device, residual)
        items = Items(upload(device, ids), TOKENS, USED)
        total = RoutedSum(items, rows, out, upload(device, weights), residual=out, scale=0.5)
        device.launch(experts.down(hidden.span, case.up.part, total, planes=planes))
        values = item_products(case.up, ids, hidden.seen).reshape(TOKENS, USED, rows)
        expected = residual + 0.5 * np.einsum("tu,tur->tr", weights, values)
        _close(read(device, out, np.float32, (TOKENS, rows)), expected, planes)


def test_experts_are_summed_in_ascending_order(device: Device) -> None:
    """The order in which the router names the experts changes no bit."""
    case = _case(device, QuantType.Q4_0, 1)
    hidden = operand(device, random_tokens(TOKENS * USED, case.columns), 1).seen
    ids, weights = random_routes(TOKENS, EXPERTS, USED)
    outs = []
    for order in ([0, 1, 2], [2, 0, 1]):
        rows = hidden.reshape(TOKENS, USED, -1)[:, order].reshape(TOKENS * USED, -1)
        named = operand(device, rows.astype(np.float32), 1).span
        listed, factors = (
            upload(device, np.ascontiguousarray(v[:, order])) for v in (ids, weights)
        )
        out = empty(device, 4 * TOKENS * ROWS)
        total = RoutedSum(Items(listed, TOKENS, USED), ROWS, out, factors)
        device.launch(experts.down(named, case.up.part, total, planes=1))
        outs.append(read(device, out, np.float32, (TOKENS, ROWS)))
    np.testing.assert_array_equal(*outs)


@pytest.mark.parametrize("quant_type", [QuantType.Q4_K, QuantType.Q8_0, QuantType.F16])
def test_a_dense_feed_forward_is_expert_0(device: Device, quant_type: QuantType) -> None:
    planes = 0 if quant_type in FLOAT_TYPES else 1
    stacked = stacked_experts(device, quant_type, (1, 70, 256), has_bias=False)
    hidden = operand(device, random_tokens(3, 256), planes)
    out = empty(device, 4 * 3 * 70)
    total = RoutedSum(Items(None, 3), 70, out)
    device.launch(experts.down(hidden.span, stacked.part, total, planes=planes))
    expected = item_products(stacked, np.zeros((3, 1), int), hidden.seen)
    _close(read(device, out, np.float32, (3, 70)), expected, planes)


@pytest.mark.parametrize("used", [1, 4, 6, 32])
def test_every_number_of_experts(device: Device, used: int) -> None:
    stacked = stacked_experts(device, QuantType.Q4_0, (32, 9, 64))
    ids, weights = random_routes(1, 32, used)
    hidden = operand(device, random_tokens(used, 64), 1)
    out = empty(device, 4 * 9)
    items = Items(upload(device, ids), 1, used)
    total = RoutedSum(items, 9, out, upload(device, weights))
    device.launch(experts.down(hidden.span, stacked.part, total, planes=1))
    expected = weights.astype(np.float64) @ item_products(stacked, ids, hidden.seen)
    _close(read(device, out, np.float32, (1, 9)), expected, 1)
