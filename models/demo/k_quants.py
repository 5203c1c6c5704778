"""Quantises float32 arrays to Q4_K and Q6_K blocks of GGUF, in NumPy.

The gguf package reads these types but does not write them. The scale of each block is the best of
several weighted least-squares fits. The layouts are those of ggml-common.h.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.uint8]

SUPER_BLOCK = 256


class Fit(NamedTuple):
    """A fit of blocks by scale * levels + offset; each field has the shape (blocks, 1)."""

    scale: Floats
    offset: Floats
    error: Floats


def quantise_q4_k(values: Floats) -> Integers:
    """Quantises float32 `values` (..., columns) to bytes (..., columns / 256 * 144)."""
    blocks = values.reshape(-1, SUPER_BLOCK // 32, 32).astype(np.float32)
    fit = _fit_with_offset(blocks.reshape(-1, 32))
    scale, num_scale = _six_bits(fit.scale.reshape(-1, 8))
    depth, num_depth = _six_bits(-fit.offset.reshape(-1, 8))
    steps = (scale.astype(np.float32) * num_scale)[..., None]  # (super-blocks, 8, 1)
    depths = (depth.astype(np.float32) * num_depth)[..., None]
    levels = np.clip(np.rint((blocks + depths) * _inverse(steps)), 0, 15).astype(np.uint8)
    pairs = levels.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    packed = [_bytes(scale), _bytes(depth), _pack_six_bits(num_scale, num_depth), nibbles]
    return _rows(np.concatenate(packed, axis=-1), values.shape)


def quantise_q6_k(values: Floats) -> Integers:
    """Quantises float32 `values` (..., columns) to bytes (..., columns / 256 * 210)."""
    blocks = values.reshape(-1, SUPER_BLOCK // 16, 16).astype(np.float32)
    scales = _fit_symmetric(blocks.reshape(-1, 16)).reshape(-1, 16)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(-1)[:, None], -1)
    scale = (largest / -128).astype(np.float16)
    num_scale = np.clip(np.rint(scales * _inverse(scale.astype(np.float32))), -128, 127)
    steps = (scale.astype(np.float32) * num_scale)[..., None]  # (super-blocks, 16, 1)
    levels = np.clip(np.rint(blocks * _inverse(steps)), -32, 31).astype(np.int8) + 32
    levels = levels.astype(np.uint8)
    halves = levels.reshape(-1, 2, 2, 64) & 15
    low = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128)
    quarters = levels.reshape(-1, 2, 4, 32) >> 4
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = np.bitwise_or.reduce(quarters << shifts, axis=2).reshape(-1, 64)
    packed = [low, high, num_scale.astype(np.int8).view(np.uint8), _bytes(scale)]
    return _rows(np.concatenate(packed, axis=-1), values.shape)


def _fit_with_offset(blocks: Floats) -> Fit:
    """Fits blocks (n, 32) by 16 levels with offset <= 0; tries 21 distances of the levels."""
    # Large values move outputs most, so their errors count more; ggml uses the same weights.
    weight = np.sqrt((blocks**2).mean(-1, keepdims=True)) + np.abs(blocks)
    low = np.minimum(blocks.min(-1, keepdims=True), 0)
    span = blocks.max(-1, keepdims=True) - low
    best = _with_error(blocks, weight, span / 15, low)
    for widening in np.linspace(-1, 1, 21, dtype=np.float32):
        levels = np.clip(np.rint((blocks - low) * (15 + widening) * _inverse(span)), 0, 15)
        fit = _with_error(blocks, weight, *_weighted_line(blocks, levels, weight))
        better = fit.error < best.error
        best = Fit(*(np.where(better, new, old) for new, old in zip(fit, best, strict=True)))
    return best


def _weighted_line(blocks: Floats, levels: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Returns scale and offset, (n, 1) each, of the weighted least-squares fit to given levels.

    The offset is at most 0.
    """

    def total(terms: Floats) -> Floats:
        return (weight * terms).sum(-1, keepdims=True)

    ones, first, second = total(np.ones_like(levels)), total(levels), total(levels**2)
    value, product = total(blocks), total(blocks * levels)
    inverse = _inverse(ones * second - first**2)
    scale = (ones * product - first * value) * inverse
    offset = (second * value - first * product) * inverse
    through_zero = offset > 0
    scale = np.where(through_zero, product * _inverse(second), scale)
    return np.maximum(scale, 0), np.where(through_zero, 0, offset)


def _with_error(blocks: Floats, weight: Floats, scale: Floats, offset: Floats) -> Fit:
    """Rounds blocks to levels, and returns the fit with its weighted squared error (n, 1)."""
    levels = np.clip(np.rint((blocks - offset) * _inverse(scale)), 0, 15)
    error = (weight * (scale * levels + offset - blocks) ** 2).sum(-1, keepdims=True)
    return Fit(scale, offset, error)


def _fit_symmetric(blocks: Floats) -> Floats:
    """Fits blocks (n, 16) by 64 levels around zero and returns the scale (n, 1).

    Tries 19 distances of the levels.
    """
    peak = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[:, None], -1)
    best_scale, best_gain = np.zeros_like(peak), np.full_like(peak, -1)
    for widening in np.linspace(-0.9, 0.9, 19, dtype=np.float32):
        # The peak takes level -32, because there is no level 32.
        levels = np.clip(np.rint(blocks * -(32 + widening) * _inverse(peak)), -32, 31)
        product = (blocks**3 * levels).sum(-1, keepdims=True)  # weights are blocks**2
        second = (blocks**2 * levels**2).sum(-1, keepdims=True)
        gain = product**2 * _inverse(second)  # the part of the error that the best scale removes
        best_scale = np.where(gain > best_gain, product * _inverse(second), best_scale)
        best_gain = np.maximum(gain, best_gain)
    return best_scale


def _six_bits(values: Floats) -> tuple[NDArray[np.float16], Integers]:
    """Quantises non-negative values (n, 8) to 6 bits.

    Returns a half-precision unit (n, 1), and the multiples of it (n, 8), 0 to 63.
    """
    unit = (values.max(-1, keepdims=True) / 63).astype(np.float16)
    multiples = np.rint(values * _inverse(unit.astype(np.float32)))
    return unit, np.clip(multiples, 0, 63).astype(np.uint8)


def _pack_six_bits(scales: Integers, depths: Integers) -> Integers:
    """Packs 8 scales and 8 depths of 6 bits into 12 bytes, in the layout of Q4_K."""
    scale_bytes = scales[:, :4] | scales[:, 4:] >> 4 << 6
    depth_bytes = depths[:, :4] | depths[:, 4:] >> 4 << 6
    low_bits = scales[:, 4:] & 15 | (depths[:, 4:] & 15) << 4
    return np.concatenate([scale_bytes, depth_bytes, low_bits], axis=-1)


def _inverse(values: Floats) -> Floats:
    """Returns 1 / values, with 0 in place of results that are not finite."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1 / values
    return np.where(np.isfinite(inverse), inverse, 0).astype(np.float32)


def _bytes(halves: NDArray[np.float16]) -> Integers:
    """Returns half-precision numbers (n, 1) as little-endian bytes (n, 2)."""
    return halves.astype("<f2").view(np.uint8)


def _rows(super_blocks: Integers, shape: tuple[int, ...]) -> Integers:
    """Reshapes super-blocks (n, bytes) to the rows of `shape`, whose last axis becomes bytes."""
    return super_blocks.reshape(*shape[:-1], -1)
