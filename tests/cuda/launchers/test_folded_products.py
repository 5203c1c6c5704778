"""Products that norm or quantise results, or choose experts, give the bits of two launches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import random_routes, stacked_experts
from msgspec.structs import replace
from products import operand, random_tokens
from quant_weights import random_weights

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.elementwise import quantise
from sharpi.ops.cuda.launchers.experts import experts
from sharpi.ops.cuda.launchers.experts.route import route
from sharpi.ops.cuda.launchers.matvec import MatvecPart, matvec, with_norm, with_route
from sharpi.ops.cuda.launchers.rms_norm import rms_norm
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.ops.interface import Router, Scoring

COLUMNS = 256
Pair = tuple[Launch, Launch, list[Span]]  # two launches, and what they write


def norm_of(device: Device, x: Span, width: int, planes: int = 1) -> tuple[Launch, list[Span]]:
    weight = np.random.default_rng(width).uniform(0.5, 2, width).astype(np.float32)
    normed, quantised = empty(device, 4 * width), empty(device, activation_bytes(width, planes))
    launch = rms_norm(
        x, upload(device, weight), normed, quantised, tokens=1, width=width, groups=1,
        weight_per_group=False, epsilon=1e-6, planes=planes,
    )  # fmt: skip
    return launch, [x, normed, quantised]


def product_of(device: Device, quant_type: QuantType, rows: int) -> tuple[Launch, Span]:
    planes = 0 if quant_type is QuantType.F32 else 1
    x = operand(device, random_tokens(1, COLUMNS), planes)
    out = empty(device, 4 * rows)
    weights = upload(device, random_weights(quant_type, rows, COLUMNS))
    part = MatvecPart(weights, None, out, quant_type, rows, COLUMNS)
    residual = upload(device, random_tokens(1, rows, 5))
    launch = matvec(x.span, [part], tokens=1, planes=planes, residual=residual, scale=0.5)
    return launch, out


def check(device: Device, make: Callable[[], Pair], fold: Callable[..., Launch | None]) -> Launch:
    """Compares a pair of launches with one launch, which runs twice on the same counter."""
    (first, second, apart), (one, other, together) = make(), make()
    for launch in (first, second):
        device.launch(launch)
    counter = upload(device, np.zeros(1, np.int32))
    folded = fold(one, other, counter)
    assert folded is not None
    for _ in range(2):
        device.launch(folded)
    for wanted, found in zip(apart, together, strict=True):
        size = (found.num_bytes,)
        np.testing.assert_array_equal(
            read(device, found, np.uint8, size), read(device, wanted, np.uint8, size)
        )
    assert read(device, counter, np.int32, (1,))[0] == 0
    return folded


@pytest.mark.parametrize(
    ("quant_type", "rows"),
    [(QuantType.Q8_0, 32), (QuantType.Q8_0, 2080), (QuantType.F32, 768)],
    ids=str,
)
def test_the_norm_of_a_product(device: Device, quant_type: QuantType, rows: int) -> None:
    def make() -> Pair:
        product, out = product_of(device, quant_type, rows)
        return (product, *norm_of(device, out, rows))

    folded = check(device, make, with_norm)
    assert folded.grid[0] > 1 or rows == 32


def test_the_norm_of_the_first_of_two_products(device: Device) -> None:
    """So it is with the compressed queries of latent attention."""

    def make() -> Pair:
        x, rows = operand(device, random_tokens(1, COLUMNS), 1), (96, 40)
        outs = [empty(device, 4 * count) for count in rows]
        kind = QuantType.Q8_0
        matrices = [random_weights(kind, count, COLUMNS, i) for i, count in enumerate(rows)]
        parts = [
            MatvecPart(upload(device, matrix), None, out, kind, count, COLUMNS)
            for matrix, out, count in zip(matrices, outs, rows, strict=True)
        ]
        product = matvec(x.span, parts, tokens=1, planes=1)
        norm, written = norm_of(device, outs[0], rows[0])
        other, _ = norm_of(device, outs[1], rows[1])
        assert with_norm(product, other, outs[0]) is None
        return product, norm, [*written, outs[1]]

    assert check(device, make, with_norm).grid[0] > 2


def test_the_norm_of_experts(device: Device) -> None:
    ids, weights = random_routes(1, 6, 4)
    rows = 160

    def make() -> Pair:
        stacked = stacked_experts(device, QuantType.Q8_0, (6, rows, COLUMNS))
        hidden = operand(device, random_tokens(4, COLUMNS), 1)
        out = empty(device, 4 * rows)
        items = experts.Items(upload(device, ids), 1, 4)
        total = experts.RoutedSum(items, rows, out, upload(device, weights))
        down = experts.down(hidden.span, stacked.part, total, planes=1)
        return (down, *norm_of(device, out, rows))

    folded = check(device, make, experts.down_with_norm)
    assert folded.grid[0] > 1
    assert experts.down_with_norm(folded, make()[1], Span(folded.arguments[7].memory, 0, 4)) is None  # type: ignore[union-attr]


@pytest.mark.parametrize("num_groups", [1, 4])
def test_the_choice_of_experts(device: Device, num_groups: int) -> None:
    num_experts, used = 160, 6
    bias = np.random.default_rng(1).normal(0, 0.1, num_experts).astype(np.float32)

    def make() -> Pair:
        product, logits = product_of(device, QuantType.F32, num_experts)
        ids, weights = empty(device, 4 * used), empty(device, 4 * used)
        groups = num_groups, max(1, num_groups // 2)
        rules = Router(num_experts, used, Scoring.SIGMOID, True, 2.5, None, *groups)
        choice = route(logits, upload(device, bias), ids, weights, rules, tokens=1)
        return product, choice, [logits, ids, weights]

    assert check(device, make, with_route).grid[0] > 1


def heads_of(device: Device, rows: int, planes: int, heads: int = 3) -> Pair:
    """Returns the products of some heads with matrices of their own, and the quantising of all."""
    stacked = stacked_experts(device, QuantType.Q8_0, (heads, rows, COLUMNS), has_bias=False)
    x = operand(device, random_tokens(heads, COLUMNS), planes)
    out, width = empty(device, 4 * heads * rows), heads * rows
    items = experts.Items(upload(device, np.arange(heads, dtype=np.int32)), heads)
    product = experts.product(x.span, items, stacked.part, out, planes=planes)
    quantised = empty(device, activation_bytes(width, planes))
    quantising = quantise(out, quantised, tokens=1, columns=width, planes=planes)
    return product, quantising, [out, quantised]


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("rows", [64, 128])
def test_the_quantising_of_heads(device: Device, rows: int, planes: int) -> None:
    def fold(product: Launch, quantising: Launch, _: Span) -> Launch | None:
        return experts.product_with_quantise(product, quantising)

    assert check(device, lambda: heads_of(device, rows, planes), fold).grid[0] == rows // 32


def test_what_is_quantised_otherwise_is_left(device: Device) -> None:
    product, quantising, (out, _) = heads_of(device, 64, 1)
    sizes = {"columns": 64, "planes": 1}
    others = [
        quantise(empty(device, out.num_bytes), out, tokens=1, columns=192, planes=1),
        quantise(out, out, tokens=3, **sizes),  # a row for each head
        quantise(out, out, tokens=1, **sizes),  # one head alone
    ]
    assert all(experts.product_with_quantise(product, other) is None for other in others)
    assert experts.product_with_quantise(product, quantising) is not None
    partly = heads_of(device, 96 + 8, 1, heads=4)  # the last block of a head has 8 rows
    assert experts.product_with_quantise(*partly[:2]) is None


def test_what_does_not_belong_together_is_left(device: Device) -> None:
    product, out = product_of(device, QuantType.Q8_0, 64)
    other = empty(device, 256)
    norm, _ = norm_of(device, out, 64)
    counter = empty(device, 4)
    cases: list[Any] = [
        norm_of(device, other, 64)[0],  # another row
        norm_of(device, out, 32)[0],  # a part of it
        replace(norm, grid=(2, 1, 1)),  # of two tokens
    ]
    assert all(with_norm(product, case, counter) is None for case in cases)
    folded = with_norm(product, norm, counter)
    assert folded is not None
    assert with_norm(folded, norm, counter) is None
    choice = route(out, None, other, other, Router(64, 2), tokens=1)
    assert with_route(product, choice, counter) is None  # quantised
