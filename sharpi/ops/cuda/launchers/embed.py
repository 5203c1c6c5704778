"""Launches the kernels that look up embeddings."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.matvec_layout import units_of_row

_BLOCK = 64


def embed(
    table: Span,
    ids: Span,
    out: Span,
    *,
    quant_type: QuantType,
    tokens: int,
    columns: int,
    scale: float,
) -> Launch:
    """Computes out (T, columns): the table's rows for `ids` int32 (T,), times `scale`."""
    name = quant_type.name.lower()
    return Launch(
        Kernel("embed", f"embed_{name}", name),
        grid=(-(-units_of_row(quant_type, columns) // _BLOCK), tokens, 1),
        block=_BLOCK,
        arguments=(table, ids, out, np.int32(columns), np.float32(scale)),
        writes=frozenset({2}),
    )
