"""The recurrent states of the CPU engine, which callers assign to sequences."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu.buffers import aligned_bytes
from sharpi.ops.recurrent import RecurrentShape
from sharpi.ops.state_layout import StateLayout


class StateMemory:
    """Memory for `num_states` recurrent states; the system commits it at the first write.

    One state holds what all recurrent layers keep for one sequence.
    """

    def __init__(self, shapes: Iterable[RecurrentShape], num_states: int) -> None:
        self.layout = StateLayout(shapes)
        size = num_states * self.layout.num_floats
        self._states = aligned_bytes(4 * size).view(np.float32).reshape(num_states, -1)
        # The address of each state, on a cache line.
        self.addresses = tuple(int(state.ctypes.data) for state in self._states)

    def copy(self, source: int, target: int) -> None:
        """Copies state `source` to state `target`."""
        self._states[target] = self._states[source]

    @property
    def state_bytes(self) -> int:
        """The bytes of one state."""
        return int(4 * self._states.shape[1])

    def read(self, state: int, target: npt.NDArray[np.uint8]) -> None:
        """Copies a state to `target`, (state_bytes,)."""
        target[:] = self._states[state].view(np.uint8)

    def write(self, state: int, source: npt.NDArray[np.uint8]) -> None:
        """Writes to a state the bytes that `read` copied."""
        self._states[state].view(np.uint8)[:] = source
