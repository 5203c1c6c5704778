"""Random weights of every quant type with CUDA kernels, and their values."""

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from sharpi.gguf.quant_types import QuantType, row_bytes

FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)
# Where the half floats of a block are, in bytes.
_HALVES: dict[QuantType, tuple[int, ...]] = {
    QuantType.Q4_0: (0,),
    QuantType.Q4_1: (0, 2),
    QuantType.Q5_0: (0,),
    QuantType.Q5_1: (0, 2),
    QuantType.Q8_0: (0,),
    QuantType.IQ4_NL: (0,),
    QuantType.MXFP4: (),
    QuantType.Q2_K: (80, 82),
    QuantType.Q3_K: (108,),
    QuantType.Q4_K: (0, 2),
    QuantType.Q5_K: (0, 2),
    QuantType.Q6_K: (208,),
    QuantType.IQ4_XS: (0,),
    QuantType.IQ2_XXS: (0,),
    QuantType.IQ2_XS: (0,),
    QuantType.IQ2_S: (0,),
    QuantType.IQ3_XXS: (0,),
    QuantType.IQ3_S: (0,),
    QuantType.IQ1_S: (0,),
    QuantType.IQ1_M: (),
    QuantType.TQ1_0: (52,),
    QuantType.TQ2_0: (64,),
    QuantType.NVFP4: (),
    QuantType.Q1_0: (0,),
    QuantType.Q2_0: (0,),
}
QUANTISED_TYPES = tuple(_HALVES)
TYPES = FLOAT_TYPES + QUANTISED_TYPES


def random_weights(
    quant_type: QuantType, rows: int, columns: int, seed: int = 0, fill: int | None = None
) -> npt.NDArray[np.uint8]:
    """(rows, bytes of a row): all codes occur, scales are ordinary numbers.

    `fill` is every byte that holds no floating-point scale.
    """
    rng = np.random.default_rng([seed, int(quant_type), rows, columns])
    if quant_type in FLOAT_TYPES:
        values = rng.standard_normal((rows, columns), np.float32)
        return gguf.quants.quantize(values, _kind(quant_type)).view(np.uint8)
    count = columns // quant_type.block_values
    blocks = rng.integers(0, 256, (rows, count, quant_type.block_bytes), np.uint8)
    if fill is not None:
        blocks[:] = fill
    for at in _HALVES[quant_type]:
        blocks[:, :, at : at + 2] = _scales(rng, rows, count)[:, :, None].view(np.uint8)
    if quant_type is QuantType.MXFP4:
        blocks[:, :, 0] = rng.integers(120, 132, (rows, count))
    if quant_type is QuantType.NVFP4:
        blocks[:, :, :4] = rng.integers(0, 0x80, (rows, count, 4))
    if quant_type is QuantType.IQ1_M:
        _scatter(_scales(rng, rows, count).view(np.uint16), blocks[:, :, 48:])
    return blocks.reshape(rows, row_bytes(quant_type, columns))


def as_floats(quant_type: QuantType, weights: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Dequantises with the gguf package, (rows, columns), or by the format if it lacks the type."""
    if quant_type in (QuantType.Q1_0, QuantType.Q2_0):
        return _few_bits(weights.reshape(len(weights), -1, 18), quant_type.block_values)
    return np.asarray(gguf.quants.dequantize(weights, _kind(quant_type)), np.float64)


def product_error(
    out: npt.NDArray[Any], x: npt.NDArray[np.float64], dense: npt.NDArray[np.float64]
) -> float:
    """Returns the norm of out - x dense^T over the results' norm.

    A result whose terms cancel counts as large as the root of the sum of their squares.
    """
    expected = x @ dense.T
    terms = np.sqrt(x**2 @ (dense**2).T)
    size = np.linalg.norm(np.maximum(np.abs(expected), terms))
    return float(np.linalg.norm(out - expected) / size)


def _kind(quant_type: QuantType) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType(int(quant_type))


def _scales(rng: np.random.Generator, rows: int, count: int) -> npt.NDArray[np.float16]:
    """Returns scales (rows, blocks) of both signs."""
    scales = rng.uniform(0.01, 1, (rows, count)) * rng.choice([-1, 1], (rows, count))
    return scales.astype(np.float16)


def _scatter(halves: npt.NDArray[np.uint16], scales: npt.NDArray[np.uint8]) -> None:
    """Stores each half float in the top four bits of four 16-bit words, low bits first."""
    for i in range(4):
        top = scales[:, :, 2 * i + 1]
        top[:] = top & 15 | (halves >> 4 * i & 15) << 4


def _few_bits(blocks: npt.NDArray[np.uint8], block_values: int) -> npt.NDArray[np.float64]:
    """A half float d, then codes of 1 or 2 bits in order: d * (2 * code - 1), d * (code - 1)."""
    d = blocks[:, :, :2].copy().view(np.float16).astype(np.float64)
    bits = 128 // block_values
    codes = blocks[:, :, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
    values = codes.astype(np.float64) * (2 // bits) - 1
    return np.asarray((d * values.reshape(*blocks.shape[:2], -1)).reshape(len(blocks), -1))
