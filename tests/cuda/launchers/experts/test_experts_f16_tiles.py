"""Tiles of F16 and BF16 experts give the products of float64 within the rounding of f16."""

from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from device_arrays import empty, read, upload
from expert_weights import Array, StackedExperts, hidden_values, item_products, stacked_experts
from products import EXACT_ERROR, operand, random_tokens

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts_grouped
from sharpi.ops.cuda.launchers.experts.experts_grouped import Groups, supports_f16_tiles
from sharpi.ops.cuda.launchers.experts.route import group_routes
from sharpi.ops.cuda.launchers.f16_rows import F16Rows, to_f16
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.ops.interface import Activation

TYPES = pytest.mark.parametrize(
    "quant_type", [QuantType.F16, QuantType.BF16], ids=lambda each: each.name
)
MANY = 66, 0, 1, 33  # items of each expert: three tiles, none, one, and two
FEW = 3, 17
USED = 2


@dataclass(frozen=True)
class Routes:
    """`USED` experts of each token, and the lists by expert on a device."""

    ids: Array
    weights: Array
    lists: tuple[Span, Span]


def routes_of(device: Device, counts: tuple[int, ...]) -> Routes:
    """Gives each expert so many items, in random order."""
    rng = np.random.default_rng(counts)
    ids = rng.permutation(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    lists = empty(device, 4 * len(counts) + 4), empty(device, ids.nbytes)
    sizes = {"tokens": len(ids), "used": 1, "experts": len(counts)}
    device.launch(group_routes(upload(device, ids), *lists, **sizes))
    weights = rng.uniform(0.5, 2, len(ids)).astype(np.float32)
    return Routes(ids.reshape(-1, USED), weights.reshape(-1, USED), lists)


def in_f16(device: Device, x: Array) -> tuple[F16Rows, Array]:
    """Returns rows in f16 on the device, and their values."""
    out = F16Rows(empty(device, 2 * x.size), empty(device, 4 * len(x)))
    device.launch(to_f16(upload(device, x), out, tokens=len(x), width=x.shape[1]))
    halves = read(device, out.rows, np.float16, x.shape).astype(np.float64)
    return out, halves * read(device, out.scales, np.float32, (len(x), 1))


def error_of_f16(stacked: StackedExperts, ids: Array, x: Array) -> Array:
    """Returns the most by which products change if x is rounded: to 11 bits, or 2^-24 of 1."""
    scales = 2 * np.abs(x).max(axis=1, keepdims=True)  # or less
    sizes = replace(stacked, dense=np.abs(stacked.dense), bias=np.abs(stacked.bias))
    rounded = replace(sizes, bias=np.zeros_like(sizes.bias))
    lost = item_products(rounded, ids, np.abs(x) * 2.0**-11 + scales * 2.0**-25)
    return np.asarray(lost + 1e-6 * item_products(sizes, ids, np.abs(x)))


def relative_error(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def product(
    device: Device,
    routes: Routes,
    stacked: StackedExperts,
    x: F16Rows | Span,
    used: int = USED,
) -> Array:
    """Returns the products of all items, (items, rows); those of absent experts are 7."""
    experts, rows, _ = stacked.dense.shape
    out = upload(device, np.full((routes.ids.size, rows), 7, np.float32))
    groups, part = Groups(*routes.lists, experts, used), stacked.part
    launch = experts_grouped.product(x, groups, part, out, planes=0)
    assert launch.kernel.file == (
        "experts_grouped_product" if isinstance(x, Span) else "experts_f16_product"
    )
    device.launch(launch)
    return read(device, out, np.float32, (routes.ids.size, rows))


@TYPES
@pytest.mark.parametrize(
    ("counts", "rows", "columns"),
    [(MANY, 70, 200), (FEW, 1, 8), (FEW, 65, 64), (FEW, 128, 136)],
    ids=str,
)
def test_product(
    device: Device, quant_type: QuantType, counts: tuple[int, ...], rows: int, columns: int
) -> None:
    """Rows that fill no tile, and columns that fill no step or several."""
    routes = routes_of(device, counts)
    shape = len(counts), rows, columns
    stacked = stacked_experts(device, quant_type, shape, has_factors=True)
    x = random_tokens(len(routes.ids), columns)
    rounded, seen = in_f16(device, x)
    found = product(device, routes, stacked, rounded)
    assert relative_error(found, item_products(stacked, routes.ids, seen)) <= EXACT_ERROR
    most = error_of_f16(stacked, routes.ids, x)
    assert (np.abs(found - item_products(stacked, routes.ids, x)) <= most).all()
    floats = product(device, routes, stacked, upload(device, x))
    assert (np.abs(found - floats) <= most).all()


@TYPES
def test_an_item_has_the_same_bits_alone_and_among_others(
    device: Device, quant_type: QuantType
) -> None:
    """Alone it is the first of a tile; among others it is anywhere."""
    routes = routes_of(device, MANY)
    stacked = stacked_experts(device, quant_type, (len(MANY), 40, 200))
    x = random_tokens(routes.ids.size, 200)
    found = product(device, routes, stacked, in_f16(device, x)[0], used=1)
    for item in (0, 5, 60, 91, int(np.flatnonzero(routes.ids.ravel() == 2)[0])):
        expert = routes.ids.ravel()[item]
        offsets = np.where(np.arange(len(MANY) + 1) > expert, 1, 0).astype(np.int32)
        alone = replace(routes, ids=np.zeros((1, 1)), lists=(upload(device, offsets), None))
        row = in_f16(device, x[item : item + 1])[0]
        (only,) = product(device, alone, stacked, row, used=1)
        np.testing.assert_array_equal(found[item], only)


def test_experts_without_an_address_are_skipped(device: Device) -> None:
    routes = routes_of(device, MANY)
    stacked = stacked_experts(device, QuantType.F16, (len(MANY), 40, 64))
    x, _ = in_f16(device, random_tokens(len(routes.ids), 64))
    found = product(device, routes, stacked, x)
    table = read(device, stacked.part.addresses, np.uint64, (len(MANY),))
    table[0] = 0
    absent = msgspec.structs.replace(stacked.part, addresses=upload(device, table))
    left = product(device, routes, replace(stacked, part=absent), x)
    is_first = routes.ids.ravel() == 0
    assert (left[is_first] == 7).all()
    np.testing.assert_array_equal(left[~is_first], found[~is_first])


def test_weights_of_bf16_that_are_no_normal_halves(device: Device) -> None:
    """They are exact from 2^-17 on, with the 8 bits that they have; below they are rounded."""
    exponents = np.arange(-30, 16)
    values = np.float32(255 / 128) * np.exp2(exponents).astype(np.float32)
    weights = np.zeros((len(values), 64), np.float32)
    weights[:, 5] = values
    data = upload(device, (weights.view(np.uint32) >> 16).astype(np.uint16))
    routes = routes_of(device, (2,))
    stacked = stacked_experts(device, QuantType.BF16, (1, *weights.shape), has_bias=False)
    table = upload(device, np.array([data.address], np.uint64))
    part = msgspec.structs.replace(stacked.part, addresses=table, referenced=(data,))
    x, _ = in_f16(device, np.ones((1, 64), np.float32))
    found, _ = product(device, routes, replace(stacked, part=part), x)
    np.testing.assert_array_equal(found[exponents >= -17], values[exponents >= -17])
    assert (np.abs(found - values) <= 2.0**-25).all()


@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_sizes_beyond_f16(device: Device, size: float) -> None:
    routes = routes_of(device, FEW)
    stacked = stacked_experts(device, QuantType.F16, (2, 9, 72), has_bias=False)
    x = np.float32(size) * random_tokens(len(routes.ids), 72)
    rounded, seen = in_f16(device, x)
    found = product(device, routes, stacked, rounded)
    exact = item_products(stacked, routes.ids, seen)
    assert np.linalg.norm(found / (size or 1) - exact / (size or 1)) <= EXACT_ERROR * max(
        1e-9, np.linalg.norm(exact / (size or 1))
    )


def test_no_numbers_stay_visible_in_their_own_row(device: Device) -> None:
    routes = routes_of(device, FEW)
    stacked = stacked_experts(device, QuantType.F16, (2, 9, 72))
    x = random_tokens(len(routes.ids), 72)
    x[2, 3] = np.nan
    found = product(device, routes, stacked, in_f16(device, x)[0])
    is_broken = np.isnan(found).reshape(len(x), -1)
    assert is_broken[2].all()
    assert not np.delete(is_broken, 2, axis=0).any()


def gate_up(
    device: Device,
    routes: Routes,
    pair: list[StackedExperts],
    x: F16Rows,
    hidden_planes: int,
    input_weights: Span | None = None,
    is_packed: bool = False,
) -> Span:
    experts, rows, _ = pair[0].dense.shape
    row = activation_bytes(rows, hidden_planes) or 4 * rows
    out = empty(device, routes.ids.size * row)
    device.launch(
        experts_grouped.gate_up(
            x,
            Groups(*routes.lists, experts, USED, is_packed),
            *(pair[0].part, pair[1].part, out),
            activation=Activation.SILU,
            planes=0,
            hidden_planes=hidden_planes,
            input_weights=input_weights,
        )
    )
    return out


@TYPES
@pytest.mark.parametrize("has_weights", [False, True])
def test_gate_up(device: Device, quant_type: QuantType, has_weights: bool) -> None:
    routes, rows, columns = routes_of(device, MANY), 45, 136
    shape = len(MANY), rows, columns
    pair = [stacked_experts(device, quant_type, shape, seed, has_factors=True) for seed in (1, 2)]
    x, seen = in_f16(device, random_tokens(len(routes.ids), columns) / 8)
    weights = upload(device, routes.weights) if has_weights else None
    out = gate_up(device, routes, pair, x, 0, weights)
    found = read(device, out, np.float32, (routes.ids.size, rows))
    if has_weights:
        seen = np.repeat(seen, USED, axis=0) * routes.weights.reshape(-1, 1)
    exact = hidden_values(Activation.SILU, *pair, routes.ids, seen)
    assert relative_error(found, exact) <= 2 * EXACT_ERROR


def test_gate_up_of_packed_items_and_rounded(device: Device) -> None:
    """Rows in the order of the list have the values of rows in the order of items."""
    routes, rows = routes_of(device, FEW), 64
    pair = [stacked_experts(device, QuantType.F16, (2, rows, 72), seed) for seed in (1, 2)]
    x, _ = in_f16(device, random_tokens(len(routes.ids), 72) / 8)
    spans = [
        gate_up(device, routes, pair, x, planes, is_packed=is_packed)
        for planes, is_packed in ((0, False), (0, True), (1, False))
    ]
    shape = routes.ids.size, rows
    found, packed = (read(device, span, np.float32, shape) for span in spans[:2])
    items = read(device, routes.lists[1], np.int32, (routes.ids.size,))
    np.testing.assert_array_equal(packed, found[items])
    rounded = read(device, spans[2], np.uint8, (spans[2].num_bytes,))
    wanted = operand(device, found, 1).span
    np.testing.assert_array_equal(rounded, read(device, wanted, np.uint8, (wanted.num_bytes,)))


def test_which_matrices_are_multiplied_in_f16() -> None:
    """Not in `--precision f32`, nor where rows do not begin at multiples of 16 bytes."""
    for quant_type in (QuantType.F16, QuantType.BF16):
        assert supports_f16_tiles(quant_type, 1, 72)
        assert supports_f16_tiles(quant_type, 2, 72)
        assert not supports_f16_tiles(quant_type, 0, 72)
        assert not supports_f16_tiles(quant_type, 1, 76)
    assert not supports_f16_tiles(QuantType.F32, 1, 72)
    assert not supports_f16_tiles(QuantType.Q8_0, 1, 64)
