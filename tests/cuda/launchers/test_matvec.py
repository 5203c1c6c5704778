from itertools import product
from typing import Any

import numpy as np
import pytest
from device_arrays import empty, read, upload
from msgspec.structs import replace
from products import EXACT_ERROR, QUANTISED_ERROR, Floats, Operand, operand, random_tokens, taken
from quant_weights import (
    FLOAT_TYPES,
    QUANTISED_TYPES,
    as_floats,
    product_error,
    random_weights,
)

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.matvec import MatvecPart, matvec, matvec_mixed, matvec_tiled
from sharpi.ops.cuda.matvec_layout import reads_floats

TILED = [QuantType.Q8_0, QuantType.Q4_K, QuantType.Q6_K, QuantType.IQ4_NL]


def _products(
    device: Device, quant_type: QuantType, x: Operand, weights: list[np.ndarray], planes: int
) -> list[Floats]:
    tokens, columns = x.seen.shape
    parts = [
        MatvecPart(
            *(upload(device, w), None, empty(device, 4 * tokens * len(w))),
            *(quant_type, len(w), columns),
        )
        for w in weights
    ]
    device.launch(matvec(x.span, parts, tokens=tokens, planes=planes))
    return [read(device, part.out, np.float32, (tokens, part.rows)) for part in parts]


def _columns(quant_type: QuantType) -> list[int]:
    if quant_type in FLOAT_TYPES:
        return [2, 30, 264, 256]
    return [n for n in (32, 96, 256, 768) if n % quant_type.block_values == 0]


@pytest.mark.parametrize("planes", [0, 1, 2])
@pytest.mark.parametrize("quant_type", QUANTISED_TYPES, ids=lambda t: t.name)
def test_against_float64(device: Device, quant_type: QuantType, planes: int) -> None:
    bound = QUANTISED_ERROR if planes else EXACT_ERROR
    for columns in _columns(quant_type)[-2:]:
        for rows, tokens in ((35, 1), (5, 3), (3, 19)):
            weights = random_weights(quant_type, rows, columns)
            x = operand(device, random_tokens(tokens, columns), planes)
            (out,) = _products(device, quant_type, x, [weights], planes)
            error = product_error(out, x.seen, as_floats(quant_type, weights))
            assert error < bound, (columns, rows, tokens)


@pytest.mark.parametrize("quant_type", FLOAT_TYPES, ids=lambda t: t.name)
def test_float_weights(device: Device, quant_type: QuantType) -> None:
    for columns in _columns(quant_type):
        for rows, tokens in ((1, 1), (35, 1), (5, 3), (18, 8), (3, 19)):
            weights = random_weights(quant_type, rows, columns)
            x = operand(device, random_tokens(tokens, columns), 0)
            (out,) = _products(device, quant_type, x, [weights], 1)
            error = product_error(out, x.seen, as_floats(quant_type, weights))
            assert error < EXACT_ERROR, (columns, rows, tokens)


@pytest.mark.parametrize(
    ("quant_type", "planes"),
    [*product([QuantType.F16, QuantType.Q4_K, QuantType.Q8_0], [0]), *product(TILED, [1, 2])],
    ids=lambda value: getattr(value, "name", value),
)
def test_other_tokens_do_not_change_a_token(
    device: Device, quant_type: QuantType, planes: int
) -> None:
    weights, tokens = random_weights(quant_type, 7, 512), random_tokens(11, 512)
    together = _products(device, quant_type, operand(device, tokens, planes), [weights], planes)
    for token in (0, 5, 7, 10):
        alone = operand(device, tokens[token : token + 1], planes)
        (out,) = _products(device, quant_type, alone, [weights], planes)
        np.testing.assert_array_equal(out[0], together[0][token])


@pytest.mark.parametrize("quant_type", [QuantType.Q4_K, QuantType.Q6_K, QuantType.F16])
def test_three_parts_are_three_matrices(device: Device, quant_type: QuantType) -> None:
    planes = 0 if reads_floats(quant_type, 1) else 1
    x = operand(device, random_tokens(2, 256), planes)
    weights = [random_weights(quant_type, rows, 256) for rows in (70, 1, 33)]
    together = _products(device, quant_type, x, weights, planes)
    for matrix, out in zip(weights, together, strict=True):
        (alone,) = _products(device, quant_type, x, [matrix], planes)
        np.testing.assert_array_equal(out, alone)


@pytest.mark.parametrize("tokens", [1, 3])
def test_factor_bias_residual_and_scale(device: Device, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    weights, rows = random_weights(QuantType.Q8_0, 19, 64), 19
    bias = rng.standard_normal(rows, np.float32)
    residual = rng.standard_normal((tokens, rows), np.float32)
    x = operand(device, random_tokens(tokens, 64), 0)
    span = upload(device, residual)
    spans = upload(device, weights), upload(device, bias), span
    part = MatvecPart(*spans, QuantType.Q8_0, rows, columns=64, factor=3.0)
    launch = matvec(x.span, [part], tokens=tokens, planes=0, residual=span, scale=0.25)
    device.launch(launch)
    expected = residual + 0.25 * (3 * x.seen @ as_floats(QuantType.Q8_0, weights).T + bias)
    out = read(device, span, np.float32, residual.shape)
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("planes", [0, 1, 2])
def test_nan_stays_with_its_token(device: Device, planes: int) -> None:
    weights, tokens = random_weights(QuantType.Q4_K, 9, 256), random_tokens(3, 256)
    tokens[1, 77] = np.nan
    x = Operand(taken(device, tokens, planes), tokens.astype(np.float64))
    (out,) = _products(device, QuantType.Q4_K, x, [weights], planes)
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), [False, True, False])
    assert not np.isnan(out[[0, 2]]).any()


@pytest.mark.parametrize("fill", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_codes(device: Device, fill: int) -> None:
    """The largest whole numbers, all of one sign, are summed without loss."""
    for quant_type in QUANTISED_TYPES:
        weights = random_weights(quant_type, 4, 256, fill=fill)
        x = operand(device, np.full((1, 256), -3, np.float32), 1)
        (out,) = _products(device, quant_type, x, [weights], 1)
        dense = as_floats(quant_type, weights)
        bound = QUANTISED_ERROR * np.abs(x.seen) @ np.abs(dense).T
        assert (np.abs(out - x.seen @ dense.T) <= bound).all(), quant_type.name


@pytest.mark.parametrize("planes", [0, 1, 2])
@pytest.mark.parametrize("order", ["446", "64", "654"])
def test_mixed_types_have_the_bits_of_each_alone(device: Device, order: str, planes: int) -> None:
    types, columns = [QuantType[f"Q{digit}_K"] for digit in order], 768
    x = operand(device, random_tokens(1, columns), planes)
    parts, wanted = [], []
    for i, quant_type in enumerate(types):
        rows = (70, 1, 33)[i]
        weights = random_weights(quant_type, rows, columns, seed=i)
        bias = upload(device, random_tokens(1, rows, i))
        spans = upload(device, weights), bias, empty(device, 4 * rows)
        own = MatvecPart(*spans, quant_type, rows, columns, 0.5)
        device.launch(matvec(x.span, [own], tokens=1, planes=planes))
        wanted.append(read(device, own.out, np.float32, (rows,)))
        parts.append(replace(own, out=empty(device, 4 * rows)))
    device.launch(matvec_mixed(x.span, parts, planes=planes))
    for part, each in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(read(device, part.out, np.float32, each.shape), each)


@pytest.mark.parametrize("quant_type", TILED, ids=lambda t: t.name)
def test_tiles_have_the_bits_of_products_with_one_token(
    device: Device, quant_type: QuantType
) -> None:
    """Two blocks of rows and two of tokens, with and without an addend."""
    for columns, tokens, rows in ((256, 37, (70, 3, 64)), (1024, 9, (5,))):
        x = operand(device, random_tokens(tokens, columns), 1).span
        weights = [upload(device, random_weights(quant_type, n, columns, seed=n)) for n in rows]
        bias = [upload(device, random_tokens(1, n, 3)) for n in rows]
        more: dict[str, Any] = {}
        if len(rows) == 1:
            more = {"residual": upload(device, random_tokens(tokens, *rows)), "scale": 0.5}
        found = []
        for launcher, form in ((matvec, {"planes": 1}), (matvec_tiled, {})):
            outs = [empty(device, 4 * tokens * n) for n in rows]
            parts = [
                MatvecPart(*spans, quant_type, n, columns, 0.7)
                for *spans, n in zip(weights, bias, outs, rows, strict=True)
            ]
            device.launch(launcher(x, parts, tokens=tokens, **form, **more))
            found.append(
                [read(device, o, np.float32, (tokens, n)) for o, n in zip(outs, rows, strict=True)]
            )
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
