"""Memory for what recurrent layers carry: a state for each sequence, and snapshots of it."""

import numpy as np
import numpy.typing as npt

from sharpi.errors import ContextFullError
from sharpi.ops.buffers import aligned_bytes

State = npt.NDArray[np.float32]


class StatePool:
    """At most `max_states` arrays of `num_floats`; snapshots make room for others, oldest first."""

    def __init__(self, num_floats: int, max_states: int) -> None:
        self.num_floats, self._max_states = num_floats, max_states
        self._num_made = 0
        self._free: list[State] = []
        self._snapshots: dict[tuple[object, int], State] = {}

    def take(self) -> State:
        """Room for a state, its values undefined; raises ContextFullError when there is none."""
        if self._free:
            return self._free.pop()
        if self._num_made < self._max_states:
            self._num_made += 1
            return aligned_bytes(4 * self.num_floats).view(np.float32)
        if self._snapshots:
            return self._snapshots.pop(next(iter(self._snapshots)))
        raise ContextFullError(
            f"all {self._max_states} states of recurrent layers are in use by other sequences;"
            " reset one of them first"
        )

    def give_back(self, state: State) -> None:
        """Returns what `take` gave."""
        self._free.append(state)

    def remember(self, owner: object, position: int, state: State) -> None:
        """Keeps a copy for the owner, if there is room that no sequence computes in."""
        kept = self._snapshots.pop((owner, position), None)
        try:
            copy = self.take() if kept is None else kept
        except ContextFullError:
            return
        if kept is None:
            copy[:] = state
        self._snapshots[owner, position] = copy

    def positions(self, owner: object) -> list[int]:
        """Where the owner's snapshots were taken."""
        return [position for each, position in self._snapshots if each is owner]

    def recall(self, owner: object, position: int) -> State:
        """The owner's snapshot at a position; raises KeyError."""
        return self._snapshots[owner, position]

    def forget(self, owner: object, beyond: int) -> None:
        """Drops the owner's snapshots at positions larger than `beyond`."""
        for position in self.positions(owner):
            if position > beyond:
                self._free.append(self._snapshots.pop((owner, position)))
