"""HostExpertCopies: the host copies of a tensor's experts, with their addresses on the GPU."""

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory, Span
from sharpi.errors import DeviceError

Addresses = npt.NDArray[np.uint64]


class HostExpertCopies:
    """The host copies of the `num_experts` experts in the tensor `data`.

    With `is_page_locked` they are page-locked in place, so that the GPU can read them; the
    constructor raises DeviceError if that fails. Otherwise they stay pageable, and every address
    is 0.
    """

    def __init__(
        self, device: Device, data: HostArray, num_experts: int, *, is_page_locked: bool = True
    ) -> None:
        self.num_experts, self.stride = num_experts, data.nbytes // num_experts
        self._data = data.reshape(num_experts, -1).view(np.uint8)
        self._memory = _page_locked(device, data) if is_page_locked else None

    @property
    def referenced(self) -> tuple[Span, ...]:
        """The memory to which `addresses` point; empty if it is not page-locked."""
        if self._memory is None:
            return ()
        return (Span(self._memory, 0, self._memory.num_bytes),)

    @property
    def addresses(self) -> Addresses:
        """The address on the GPU of each expert, (experts,); 0 if not page-locked."""
        if self._memory is None:
            return np.zeros(self.num_experts, np.uint64)
        steps = np.arange(self.num_experts, dtype=np.uint64) * np.uint64(self.stride)
        return np.uint64(self._memory.address) + steps

    def span(self, first: int, count: int) -> Span:
        """Returns the memory of `count` experts from id `first` on; it must be page-locked."""
        assert self._memory is not None
        return Span(self._memory, first * self.stride, count * self.stride)

    def copy_to(self, device: Device, expert: int, target: Span) -> None:
        """Copies one expert to GPU memory."""
        if self._memory is None:
            device.upload(target, self.bytes_of(expert))
        else:
            device.copy(target, self.span(expert, 1))

    def bytes_of(self, expert: int) -> HostArray:
        """Returns the bytes of one expert in host memory."""
        data: HostArray = self._data[expert]
        return data


def _page_locked(device: Device, data: HostArray) -> Memory:
    registered = device.register_array(data)
    if registered is None:
        raise DeviceError(
            "the driver cannot page-lock the experts in RAM; --moe-miss cpu needs none"
        )
    return registered
