"""GpuWeights: collects the weights while a step is recorded, then copies them together."""

from collections.abc import Callable, Iterable

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory, Span
from sharpi.ops.cuda.launchers.elementwise import add_scaled
from sharpi.ops.recurrent import RecurrentShape, StateLayout

ALIGNMENT = 256


def aligned(num_bytes: int) -> int:
    """Rounds the size of an array up, so that the next array is aligned."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class GpuWeights:
    """Copies of host arrays in the GPU's memory.

    `register` adds an array, `load` copies all arrays added, and `span` then returns a copy.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._registered: dict[int, HostArray] = {}
        self._loaded: dict[int, tuple[HostArray, Span]] = {}
        self._mapped: dict[int, tuple[HostArray, Span]] = {}
        self._constants: dict[tuple[object, ...], HostArray] = {}

    @property
    def num_bytes(self) -> int:
        """The bytes of all loaded arrays."""
        return sum(aligned(array.nbytes) for array, _ in self._loaded.values())

    def register(self, *arrays: HostArray | None) -> None:
        """Registers arrays, which the next `load` copies; None stands for no array."""
        for array in arrays:
            if (
                array is not None
                and id(array) not in self._loaded
                and id(array) not in self._mapped
            ):
                self._registered[id(array)] = array

    def register_mapped(self, array: HostArray, memory: Memory) -> None:
        """Makes `span` return `memory` for an array in page-locked RAM, which is not copied."""
        self._mapped[id(array)] = array, Span(memory, 0, array.nbytes)

    def constant(self, name: str, *sizes: int, make: Callable[..., HostArray]) -> HostArray:
        """Registers the array `make(*sizes)`, and returns it; a later call returns the same array.

        `make` is called once for each combination of `name` and `sizes`.
        """
        key = name, *sizes
        if key not in self._constants:
            self._constants[key] = make(*sizes)
        self.register(self._constants[key])
        return self._constants[key]

    def load(self) -> None:
        """Copies the arrays added since the last call; raises DeviceError if they do not fit."""
        total = sum(aligned(array.nbytes) for array in self._registered.values())
        memory, at = self._device.allocate(total), 0
        for key, array in self._registered.items():
            span = Span(memory, at, array.nbytes)
            self._device.upload(span, array)
            self._loaded[key] = array, span
            at += aligned(array.nbytes)
        self._registered = {}

    def span(self, array: HostArray) -> Span:
        """Returns the memory of an array after `load`, or that given to `register_mapped`."""
        key = id(array)
        return (self._mapped if key in self._mapped else self._loaded)[key][1]

    def optional(self, array: HostArray | None) -> Span | None:
        """Returns the memory of a loaded array, None for None."""
        return None if array is None else self.span(array)


_FLOAT_BYTES = 4


class GpuStates:
    """The recurrent states, (num_states, num_floats) float32 in `memory`.

    One state holds what all layers in `shapes` keep for one sequence. `offsets` maps a layer's
    shape to the index of its first float within a state. `has_backup` allocates memory to save one
    state.
    """

    def __init__(
        self,
        device: Device,
        shapes: Iterable[RecurrentShape],
        num_states: int,
        *,
        has_backup: bool = False,
    ) -> None:
        layout = StateLayout(shapes)
        self._device = device
        self.num_floats, self.offsets = layout.num_floats, layout.offsets
        self.num_bytes = num_states * self.num_floats * _FLOAT_BYTES
        self.memory = Span(device.allocate(self.num_bytes), 0, self.num_bytes)
        size = self.num_floats * _FLOAT_BYTES if has_backup else 0
        self._backup = Span(device.allocate(size), 0, size)

    def copy(self, source: int, target: int) -> None:
        """Copies state `source` to state `target`."""
        if self.num_floats:
            spans = self._state(source), self._state(target)
            self._device.launch(add_scaled(None, *spans, count=self.num_floats, scale=1.0))

    @property
    def state_bytes(self) -> int:
        """The bytes of one state."""
        return self.num_floats * _FLOAT_BYTES

    def read(self, state: int, target: HostArray) -> None:
        """Copies a state to `target`, (state_bytes,)."""
        if self.num_floats:
            self._device.download(self._state(state), target)

    def write(self, state: int, source: HostArray) -> None:
        """Writes to a state the bytes that `read` copied."""
        if self.num_floats:
            self._device.upload(self._state(state), source)

    def save(self, state: int) -> None:
        """Saves a state for `restore`; needs `has_backup`."""
        if self.num_floats:
            self._device.copy(self._backup, self._state(state))

    def restore(self, state: int) -> None:
        """Copies the backup memory to a state."""
        if self.num_floats:
            self._device.copy(self._state(state), self._backup)

    def _state(self, state: int) -> Span:
        size = self.num_floats * _FLOAT_BYTES
        return self.memory.part(state * size, size)
