"""Activations for tests of matrix products: as a kernel takes them, and as exact values."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from activation_rows import unpack_rows
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.elementwise import quantise
from sharpi.ops.cuda.matvec_layout import activation_bytes

# Norm of the error over norm of the result: float32 sums of up to a few thousand products.
QUANTISED_ERROR, EXACT_ERROR = 1e-5, 2e-6
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Operand:
    """`span`: the kernel's argument; `seen` (tokens, columns): its exact values."""

    span: Span
    seen: npt.NDArray[np.float64]


def random_tokens(tokens: int, columns: int, seed: int = 0) -> Floats:
    """Returns tokens (tokens, columns) of uneven magnitude."""
    rng = np.random.default_rng([seed, tokens, columns])
    x = rng.standard_normal((tokens, columns), np.float32)
    return x * np.exp(rng.normal(0, 1, (1, columns))).astype(np.float32)


def operand(device: Device, x: Floats, planes: int) -> Operand:
    """Uploads x (tokens, columns): as floats, or quantised by the quantise kernel."""
    span = taken(device, x, planes)
    if planes == 0:
        return Operand(span, x.astype(np.float64))
    return Operand(span, quantised_values(device, span, *x.shape, planes))


def taken(device: Device, x: Floats, planes: int) -> Span:
    """Returns an operand without exact values, for x that cannot be quantised."""
    span = upload(device, x)
    if planes == 0:
        return span
    tokens, columns = x.shape
    rows = empty(device, tokens * activation_bytes(columns, planes))
    device.launch(quantise(span, rows, tokens=tokens, columns=columns, planes=planes))
    return rows


def quantised_values(
    device: Device, rows: Span, tokens: int, columns: int, planes: int
) -> npt.NDArray[np.float64]:
    """The values (tokens, columns) of activation rows."""
    data = read(device, rows, np.uint8, (tokens * activation_bytes(columns, planes),))
    return unpack_rows(data, tokens, columns, planes).astype(np.float64)
