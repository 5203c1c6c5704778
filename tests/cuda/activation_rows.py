"""Activation rows (kernels/cuda/quant/activations.cuh) in NumPy, for tests."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.ops.cuda.matvec_layout import activation_bytes


def unpack_rows(
    rows: npt.NDArray[np.uint8], tokens: int, columns: int, planes: int
) -> npt.NDArray[Any]:
    """Returns the values (tokens, columns) of quantised rows, and checks their sums."""
    plane_bytes = activation_bytes(columns, 1)
    out = np.zeros((tokens, columns), np.float32)
    for plane in rows.reshape(tokens, planes, plane_bytes).swapaxes(0, 1):
        q = plane[:, :columns].view(np.int8).astype(np.float32)
        scale = np.ascontiguousarray(plane[:, columns : columns + columns // 8]).view(np.float32)
        begin = columns + columns // 8
        sums = np.ascontiguousarray(plane[:, begin : begin + columns // 8]).view(np.int16)
        np.testing.assert_array_equal(sums, q.reshape(tokens, -1, 16).sum(axis=-1))
        out += q * np.repeat(scale, 32, axis=1)
    return out


def rounding_error(x: npt.NDArray[Any], planes: int) -> npt.NDArray[Any]:
    """Returns the largest error of each value: half a step of its block of 32, and a margin."""
    peak = np.abs(x.reshape(len(x), -1, 32)).max(axis=-1)
    step = peak / 127 / (1 if planes == 1 else 254)
    return np.repeat(step * 0.501 + 1e-7 * peak, 32, axis=1)
