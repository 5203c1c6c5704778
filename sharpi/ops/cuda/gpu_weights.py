"""The weights on the GPU: collected while a step is recorded, then copied there together."""

from collections.abc import Callable

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span

ALIGNMENT = 256


def aligned(num_bytes: int) -> int:
    """Room of an array, so that the next one begins aligned."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class GpuWeights:
    """Arrays in the GPU's memory, each once: `want` before `load`, `span` after."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wanted: dict[int, HostArray] = {}
        self._loaded: dict[int, tuple[HostArray, Span]] = {}
        self._constants: dict[tuple[object, ...], HostArray] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes of what was loaded."""
        return sum(aligned(array.nbytes) for array, _ in self._loaded.values())

    def want(self, array: HostArray) -> HostArray:
        """Remembers an array that the GPU is to hold; returns it."""
        if id(array) not in self._loaded:
            self._wanted[id(array)] = array
        return array

    def constant(self, name: str, *sizes: int, make: Callable[..., HostArray]) -> HostArray:
        """`make(*sizes)`, which no file has, wanted as well: one for each name and sizes."""
        key = name, *sizes
        if key not in self._constants:
            self._constants[key] = make(*sizes)
        return self.want(self._constants[key])

    def load(self) -> None:
        """Copies what was wanted since the last time; raises DeviceError where there is no room."""
        total = sum(aligned(array.nbytes) for array in self._wanted.values())
        memory, at = self._device.allocate(total), 0
        for key, array in self._wanted.items():
            span = Span(memory, at, array.nbytes)
            self._device.upload(span, array)
            self._loaded[key] = array, span
            at += aligned(array.nbytes)
        self._wanted = {}

    def span(self, array: HostArray) -> Span:
        """Where a loaded array is."""
        return self._loaded[id(array)][1]

    def optional(self, array: HostArray | None) -> Span | None:
        """The same for one that may be missing."""
        return None if array is None else self.span(array)
