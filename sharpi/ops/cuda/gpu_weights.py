"""GpuWeights: collects the weights while a step is recorded, then copies them together."""

from collections.abc import Callable

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory, Span

ALIGNMENT = 256


def aligned(num_bytes: int) -> int:
    """Rounds the size of an array up, so that the next array is aligned."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class GpuWeights:
    """Copies of host arrays in the GPU's memory.

    `want` registers an array, `load` copies all registered ones, and `span` then returns a copy.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wanted: dict[int, HostArray] = {}
        self._loaded: dict[int, tuple[HostArray, Span]] = {}
        self._lent: dict[int, tuple[HostArray, Span]] = {}
        self._constants: dict[tuple[object, ...], HostArray] = {}

    @property
    def num_bytes(self) -> int:
        """The bytes of all loaded arrays."""
        return sum(aligned(array.nbytes) for array, _ in self._loaded.values())

    def want(self, array: HostArray) -> HostArray:
        """Registers an array, which the next `load` copies, and returns the array."""
        if id(array) not in self._loaded and id(array) not in self._lent:
            self._wanted[id(array)] = array
        return array

    def lend(self, array: HostArray, memory: Memory) -> None:
        """Makes `span` return `memory` for an array in page-locked RAM, which is not copied."""
        self._lent[id(array)] = array, Span(memory, 0, array.nbytes)

    def constant(self, name: str, *sizes: int, make: Callable[..., HostArray]) -> HostArray:
        """Registers the array `make(*sizes)`, and returns it; a later call returns the same array.

        `make` is called once for each combination of `name` and `sizes`.
        """
        key = name, *sizes
        if key not in self._constants:
            self._constants[key] = make(*sizes)
        return self.want(self._constants[key])

    def load(self) -> None:
        """Copies the arrays added since the last call; raises DeviceError if they do not fit."""
        total = sum(aligned(array.nbytes) for array in self._wanted.values())
        memory, at = self._device.allocate(total), 0
        for key, array in self._wanted.items():
            span = Span(memory, at, array.nbytes)
            self._device.upload(span, array)
            self._loaded[key] = array, span
            at += aligned(array.nbytes)
        self._wanted = {}

    def span(self, array: HostArray) -> Span:
        """Returns the memory of an array after `load`, or the memory that `lend` registered."""
        key = id(array)
        return (self._lent if key in self._lent else self._loaded)[key][1]

    def optional(self, array: HostArray | None) -> Span | None:
        """Returns the memory of a loaded array, None for None."""
        return None if array is None else self.span(array)
