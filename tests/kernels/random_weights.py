"""Random blocks of every quant type: all codes occur, and the scales are ordinary numbers."""

import math

import numpy as np
from gguf import GGMLQuantizationType, quants
from kernel_library import Bytes, Floats
from numpy.typing import NDArray

from sharpi.gguf.quant_types import QuantType as Kind

FLOAT_KINDS = (Kind.F32, Kind.F16, Kind.BF16)

# The byte offsets of the half floats of a block.
HALVES: dict[Kind, tuple[int, ...]] = {
    Kind.Q4_0: (0,),
    Kind.Q4_1: (0, 2),
    Kind.Q5_0: (0,),
    Kind.Q5_1: (0, 2),
    Kind.Q8_0: (0,),
    Kind.IQ4_NL: (0,),
    Kind.MXFP4: (),
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
    Kind.IQ4_XS: (0,),
    Kind.IQ2_XXS: (0,),
    Kind.IQ2_XS: (0,),
    Kind.IQ2_S: (0,),
    Kind.IQ3_XXS: (0,),
    Kind.IQ3_S: (0,),
    Kind.IQ1_S: (0,),
    Kind.IQ1_M: (),
    Kind.TQ1_0: (52,),
    Kind.TQ2_0: (64,),
    Kind.NVFP4: (),
    Kind.Q1_0: (0,),
    Kind.Q2_0: (0,),
}
QUANTISED_KINDS = tuple(HALVES)
KINDS = FLOAT_KINDS + QUANTISED_KINDS


def random_weights(
    kind: Kind,
    rows: int,
    columns: int,
    seed: int = 0,
    fill: int | None = None,
    largest_scale: float = 1.0,
) -> Bytes:
    """(rows, bytes of a row); `fill` is every byte that holds no floating-point scale."""
    rng = np.random.default_rng([seed, int(kind), rows, columns])
    if kind in FLOAT_KINDS:
        values = rng.standard_normal((rows, columns), np.float32)
        return quants.quantize(values, GGMLQuantizationType(kind)).view(np.uint8)
    shape = (rows, columns // kind.block_values)
    blocks = rng.integers(0, 256, (*shape, kind.block_bytes), np.uint8)
    if fill is not None:
        blocks[:] = fill
    scales = rng.uniform(0.01, 1.0, shape) * rng.choice([-1, 1], shape) * largest_scale
    for at in HALVES[kind]:
        blocks[:, :, at : at + 2] = scales.astype(np.float16)[:, :, None].view(np.uint8)
    if kind is Kind.MXFP4:
        blocks[:, :, 0] = rng.integers(120, 132, shape)
    if kind is Kind.NVFP4:
        blocks[:, :, :4] = rng.integers(0, 0x80, (*shape, 4))
    if kind is Kind.IQ1_M:
        _scatter(scales.astype(np.float16).view(np.uint16), blocks[:, :, 48:])
    return blocks.reshape(rows, -1)


def _scatter(halves: NDArray[np.uint16], scales: Bytes) -> None:
    """Stores each half float in the top four bits of four 16-bit words, low bits first."""
    for i in range(4):
        top = scales[:, :, 2 * i + 1]
        top[:] = top & 15 | (halves >> 4 * i & 15) << 4


def as_floats(kind: Kind, weights: Bytes) -> NDArray[np.float64]:
    """Returns the values of the blocks: (rows, columns)."""
    # The package decodes sixteen rows at a time, whatever their length.
    long_rows = weights.reshape(len(weights) // math.gcd(len(weights), 64), -1)
    return decoded(kind, long_rows).astype(np.float64).reshape(len(weights), -1)


def decoded(kind: Kind, weights: Bytes) -> Floats:
    """Returns (rows, columns) as the gguf package decodes them, or where it cannot, this file."""
    if kind in (Kind.Q1_0, Kind.Q2_0):
        return _few_bits(weights.reshape(len(weights), -1, kind.block_bytes), kind.block_values)
    return quants.dequantize(weights, GGMLQuantizationType(kind))


def _few_bits(blocks: Bytes, block_values: int) -> Floats:
    """Decodes a half float d, then codes of 1 or 2 bits: d * (2 * code - 1), d * (code - 1)."""
    d = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)
    bits = 128 // block_values
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = blocks[:, :, 2:, None] >> shifts & (1 << bits) - 1
    values = codes.astype(np.float32) * (2 // bits) - 1
    return (d * values.reshape(*blocks.shape[:2], -1)).reshape(len(blocks), -1)
