"""The size of activation rows quantised to int8 (kernels/cuda/quant/activations.cuh).

A row has one plane of int8 numbers and scales, or for 16-bit precision a second plane, which holds
the quantised remainders. Unquantised rows have 0 planes.
"""

from typing import Final

from sharpi.ops.cpu.program import Rounding

PLANES: Final[dict[Rounding, int]] = {"int8": 1, "int16": 2, "f32": 0}


def activation_bytes(columns: int, planes: int) -> int:
    """Returns the bytes of a quantised activation row; 0 if `planes` is 0.

    `columns` is a multiple of 32.
    """
    return planes * ((columns * 5 // 4 + 15) // 16 * 16)
