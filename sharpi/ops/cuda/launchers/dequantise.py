"""Launches the kernels that dequantise matrices to f16."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.matvec_layout import units_of_row

_BLOCK = 256


def dequantise(
    weights: Span, out: Span, *, quant_type: QuantType, rows: int, columns: int
) -> Launch:
    """Dequantises weights to out, f16 (rows, columns); values too large for f16 become infinite."""
    name = quant_type.name.lower()
    return Launch(
        Kernel("dequantise", f"dequantise_{name}", name),
        grid=(-(-rows * units_of_row(quant_type, columns) // _BLOCK), 1, 1),
        block=_BLOCK,
        arguments=(weights, out, np.int32(rows), np.int32(columns)),
        writes=frozenset({1}),
    )
