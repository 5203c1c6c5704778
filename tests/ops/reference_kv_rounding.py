"""Quantises and dequantises keys and values as each KV cache type does, in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.settings import KvType

Array = npt.NDArray[Any]
_BLOCK = 32
# ggml's levels of IQ4_NL.
NONLINEAR_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
# Lloyd-Max levels for normally distributed numbers, in units of 1/59 of the standard deviation.
NORMAL_LEVELS = np.array([-127, -79, -45, -14, 14, 45, 79, 127], np.float32)
_NORMAL_DEVIATION = 59


def round_rows(x: Array, kv_type: KvType) -> Array:
    """Quantises rows (..., dim) to a KV type and back, without a Hadamard transform."""
    rounds = _ROUNDINGS.get(kv_type)
    if rounds is None:
        return x.astype(np.float16).astype(np.float32)
    row = x.shape[-1] if kv_type == "turbo3" else _BLOCK
    with np.errstate(divide="ignore", invalid="ignore"):
        return rounds(np.asarray(x, np.float32).reshape(-1, row)).reshape(x.shape)


def _half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def _extreme(x: Array) -> Array:
    """Returns the number of largest magnitude in each row."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)


def _over(x: Array, scale: Array) -> Array:
    return np.where(scale == 0, 0, x / np.where(scale == 0, 1, scale))


def _even(x: Array, scale: Array, minimum: Array | float, zero: int, largest: int) -> Array:
    """Rounds to scale * (code - zero) + minimum, with whole codes from 0 to `largest`."""
    codes = np.clip(np.floor(_over(x - minimum, scale) + zero + 0.5), 0, largest)
    return np.asarray((codes - zero) * _half(scale) + _half(np.asarray(minimum)))


def _q8_0(x: Array) -> Array:
    return _even(x, np.abs(x).max(axis=1, keepdims=True) / 127, 0.0, 128, 255)


def _q5_1(x: Array) -> Array:
    low = x.min(axis=1, keepdims=True)
    return _even(x, (x.max(axis=1, keepdims=True) - low) / 31, low, 0, 31)


def _q5_0(x: Array) -> Array:
    return _even(x, _extreme(x) / -16, 0.0, 16, 31)


def _q4_0(x: Array) -> Array:
    return _even(x, _extreme(x) / -8, 0.0, 8, 15)


def _tabled(x: Array, levels: Array, scale: Array, weights: Array) -> Array:
    """Rounds to the nearest levels and fits the scale to them, by least squares."""
    middles = (levels[:-1] + levels[1:]) / 2
    nearest = levels[np.searchsorted(middles, _over(x, scale))]
    products = (weights * nearest * x).sum(axis=1, keepdims=True)
    squares = (weights * nearest**2).sum(axis=1, keepdims=True)
    return np.asarray(nearest * _half(_over(products, squares)))


def _iq4_nl(x: Array) -> Array:
    return _tabled(x, NONLINEAR_LEVELS, _extreme(x) / NONLINEAR_LEVELS[0], x**2)


def _turbo3(x: Array) -> Array:
    deviation = np.sqrt((x**2).mean(axis=1, keepdims=True))
    return _tabled(x, NORMAL_LEVELS, deviation / _NORMAL_DEVIATION, np.ones_like(x))


_ROUNDINGS: dict[KvType, Callable[[Array], Array]] = {
    "q8_0": _q8_0,
    "q5_1": _q5_1,
    "q5_0": _q5_0,
    "q4_0": _q4_0,
    "iq4_nl": _iq4_nl,
    "turbo3": _turbo3,
}
