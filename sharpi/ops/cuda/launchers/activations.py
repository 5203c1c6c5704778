"""The size of activation rows that are rounded to 8 bits (kernels/cuda/quant/activations.cuh)."""

from typing import Final

from sharpi.ops.cpu.program import Rounding

PLANES: Final[dict[Rounding, int]] = {"int8": 1, "int16": 2, "f32": 0}


def activation_bytes(columns: int, planes: int) -> int:
    """Returns the bytes of a rounded row of `columns`, a multiple of 32; 0 without planes."""
    return planes * ((columns * 5 // 4 + 15) // 16 * 16)
