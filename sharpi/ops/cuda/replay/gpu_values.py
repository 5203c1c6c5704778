"""GpuValues: hidden states or logits in the memory of the GPU that computed them."""

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span

_FLOAT_BYTES = 4


class GpuValues(Struct, frozen=True):
    """Rows of floats (rows, width) in the memory of a GPU, which stay valid until its next step."""

    device: Device
    span: Span
    width: int

    def send(self, receiver: Device, target: Span) -> None:
        """Copies the values to another GPU once they are computed; neither GPU waits for the host.

        The driver copies directly if the GPUs reach each other, and otherwise through RAM.
        """
        receiver.after(self.device.on_side_stream(()))
        receiver.copy(target.part(0, self.span.num_bytes), self.span)
        self.device.after(receiver.on_side_stream(()))

    def on_host(self) -> npt.NDArray[np.float32]:
        """Copies the values to the host, and waits for the end of the copy."""
        values = np.zeros((self.span.num_bytes // (_FLOAT_BYTES * self.width), self.width), "<f4")
        self.device.download(self.span, values)
        return values


StepValues = npt.NDArray[np.float32] | GpuValues


def on_host(values: Any) -> npt.NDArray[np.float32]:
    """Returns values as an array of the host: downloads `GpuValues`, and passes arrays through."""
    if isinstance(values, GpuValues):
        return values.on_host()
    assert isinstance(values, np.ndarray)
    return values
