"""Dequantises rows of weights outside of a model's steps, with the decoding of the CPU kernels."""

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_void_p

import numpy as np
import numpy.typing as npt

from sharpi.gguf.quant_types import QuantType
from sharpi.native import declare, open_library
from sharpi.ops.interface import FloatArray

_SIGNATURE = (c_int, [c_char_p, c_int, c_void_p, c_int, POINTER(c_float)])


def dequantise_rows(quant_type: QuantType, rows: npt.NDArray[np.uint8], columns: int) -> FloatArray:
    """Returns quantised rows, (..., bytes of a row), as float32 (..., columns)."""
    library = declare(open_library(), {"sharpi_dequantise": _SIGNATURE})
    data = np.ascontiguousarray(rows)
    values = np.empty((*data.shape[:-1], columns), np.float32)
    flat, out = data.reshape(-1, data.shape[-1]), values.reshape(-1, columns)
    for row, target in zip(flat, out, strict=True):
        pointer = target.ctypes.data_as(POINTER(c_float))
        status = library.sharpi_dequantise(
            None, int(quant_type), ctypes.c_void_p(row.ctypes.data), columns, pointer
        )
        assert status == 0, f"sharpi_dequantise answered {status}"
    return values
