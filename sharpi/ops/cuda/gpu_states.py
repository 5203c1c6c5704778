"""The states of recurrent layers in the GPU's memory; who has which is decided elsewhere."""

from collections.abc import Iterable

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.elementwise import add_scaled
from sharpi.ops.recurrent import RecurrentShape
from sharpi.ops.state_layout import StateLayout

_FLOAT_BYTES = 4


class GpuStates:
    """`num_states` states of some layers, (num_states, num_floats) in `memory`.

    `offsets`: where each shape begins within a state, in floats.
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
        """Makes a state what another is."""
        if self.num_floats:
            spans = self._state(source), self._state(target)
            self._device.launch(add_scaled(None, *spans, count=self.num_floats, scale=1.0))

    def save(self, state: int) -> None:
        """Keeps what a state is now; only of states that were made with a backup."""
        if self.num_floats:
            self._device.copy(self._backup, self._state(state))

    def restore(self, state: int) -> None:
        """Makes a state what it was."""
        if self.num_floats:
            self._device.copy(self._state(state), self._backup)

    def _state(self, state: int) -> Span:
        size = self.num_floats * _FLOAT_BYTES
        return self.memory.part(state * size, size)
