"""The recurrent states on the GPU, which callers assign to sequences."""

from collections.abc import Iterable

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.elementwise import add_scaled
from sharpi.ops.recurrent import RecurrentShape
from sharpi.ops.state_layout import StateLayout

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
