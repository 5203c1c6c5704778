"""NumPy arrays to a device and back, for tests."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span


def upload(device: Device, array: npt.NDArray[Any]) -> Span:
    """Uploads an array to a memory of its own."""
    span = empty(device, array.nbytes)
    if array.nbytes:
        device.upload(span, array)
    return span


def empty(device: Device, num_bytes: int) -> Span:
    """Allocates memory that is not set; on the CPU its bytes are 0xff."""
    return Span(device.allocate(num_bytes), 0, num_bytes)


def read(
    device: Device, span: Span, dtype: npt.DTypeLike, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Downloads the contents of a span."""
    array = np.empty(shape, dtype)
    device.download(span, array)
    return array
