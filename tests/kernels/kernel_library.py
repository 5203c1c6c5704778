"""The compiled kernels as NumPy functions, through the C surface for tests."""

import ctypes
import platform
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sharpi.gguf.quant_types import QuantType
from sharpi.resources import native_library

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

ISAS = (
    ("portable", "neon")
    if platform.machine() == "aarch64"
    else ("portable", "sse41", "avx2", "avx_vnni", "avx512_vnni", "avx512_vbmi")
)
INT8, EXACT = 0, 1

# 256 rounded activations, their sums of 32 and of 16, their scales: one for every 32. AVX-512's
# kernels need no sums of 8 and leave them alone.
ACTIVATION = np.dtype(
    {
        "names": ["q", "sum32", "sum16", "scale", "sum8"],
        "formats": [
            (np.int8, 256),
            (np.int16, 8),
            (np.int16, 16),
            (np.float32, 8),
            (np.int16, 16),
        ],
        "offsets": [0, 256, 272, 304, 336],
        "itemsize": 384,
    }
)


@cache
def library() -> ctypes.CDLL:
    """Returns the library; fails if it was not built, as every install builds it."""
    loaded = ctypes.CDLL(str(native_library()))
    loaded.sharpi_instruction_set.restype = ctypes.c_char_p
    return loaded


def has_isa(isa: str) -> bool:
    return library().sharpi_instruction_set(isa.encode()) is not None


def matmul(isa: str, kind: QuantType, weights: Bytes, x: Floats, precision: int = INT8) -> Floats:
    """Multiplies weights (rows, bytes of a row) with x (tokens, columns) to (tokens, rows)."""
    out = np.full((len(x), len(weights)), np.nan, np.float32)
    status = library().sharpi_matmul(
        isa.encode(),
        int(kind),
        precision,
        ctypes.c_void_p(weights.ctypes.data),
        len(weights),
        x.shape[1],
        ctypes.c_void_p(x.ctypes.data),
        len(x),
        ctypes.c_void_p(out.ctypes.data),
    )
    assert status == 0, f"sharpi_matmul answered {status}"
    return out


def dequantise(isa: str, kind: QuantType, row: Bytes, columns: int) -> Floats:
    out = np.full(columns, np.nan, np.float32)
    status = library().sharpi_dequantise(
        isa.encode(),
        int(kind),
        ctypes.c_void_p(row.ctypes.data),
        columns,
        ctypes.c_void_p(out.ctypes.data),
    )
    assert status == 0, f"sharpi_dequantise answered {status}"
    return out


def quantise(isa: str, x: Floats) -> NDArray[np.void]:
    """Rounds x (n) to (ceil(n / 256)) of ACTIVATION."""
    blocks = -(-len(x) // 256)
    memory = np.full(blocks * ACTIVATION.itemsize + 64, 0xFF, np.uint8)  # room to align to 64 bytes
    memory = memory[-memory.ctypes.data % 64 :][: blocks * ACTIVATION.itemsize]
    status = library().sharpi_quantise(
        isa.encode(), ctypes.c_void_p(x.ctypes.data), len(x), ctypes.c_void_p(memory.ctypes.data)
    )
    assert status == 0, f"sharpi_quantise answered {status}"
    return memory.view(ACTIVATION)


def rounded(isa: str, x: Floats) -> NDArray[np.float64]:
    """Returns x (tokens, columns) after rounding, as the kernels multiply it."""
    return np.stack([dequantised(quantise(isa, row))[: x.shape[1]] for row in x])


def dequantised(blocks: NDArray[np.void]) -> NDArray[np.float64]:
    """Returns the values that blocks of ACTIVATION stand for, (256 * blocks)."""
    q = blocks["q"].reshape(-1, 32).astype(np.float64)
    return (q * blocks["scale"].reshape(-1, 1)).reshape(-1)
