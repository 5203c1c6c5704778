"""Random blocks of every quant type: all codes occur, the scales are ordinary numbers."""

import numpy as np
from gguf import GGML_QUANT_SIZES, quants
from gguf import GGMLQuantizationType as Kind
from kernel_library import Bytes
from numpy.typing import NDArray

FLOAT_KINDS = (Kind.F32, Kind.F16, Kind.BF16)

# Where the half floats of a block are, in bytes.
_HALVES: dict[Kind, tuple[int, ...]] = {
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
}
QUANTISED_KINDS = tuple(_HALVES)
KINDS = FLOAT_KINDS + QUANTISED_KINDS


def block_values(kind: Kind) -> int:
    return GGML_QUANT_SIZES[kind][0]


def random_weights(
    kind: Kind, rows: int, columns: int, seed: int = 0, fill: int | None = None
) -> Bytes:
    """(rows, bytes of a row); `fill` is every byte that holds no floating-point scale."""
    rng = np.random.default_rng([seed, int(kind), rows, columns])
    if kind in FLOAT_KINDS:
        return quants.quantize(rng.standard_normal((rows, columns), np.float32), kind).view(
            np.uint8
        )
    values, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, columns // values, block_bytes), np.uint8)
    if fill is not None:
        blocks[:] = fill
    for at in _HALVES[kind]:
        signed = rng.uniform(0.01, 1.0, blocks.shape[:2]) * rng.choice([-1, 1], blocks.shape[:2])
        blocks[:, :, at : at + 2] = signed.astype(np.float16)[:, :, None].view(np.uint8)
    if kind is Kind.MXFP4:
        blocks[:, :, 0] = rng.integers(120, 132, blocks.shape[:2])
    return blocks.reshape(rows, -1)


def as_floats(kind: Kind, weights: Bytes) -> NDArray[np.float64]:
    """What the gguf package says the blocks mean."""
    return quants.dequantize(weights, kind).astype(np.float64)
