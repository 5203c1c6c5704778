"""Who has which copy of what recurrent layers carry: a state for each sequence, and snapshots."""

from collections.abc import Callable
from typing import TypeAlias

from sharpi.errors import ContextFullError

State: TypeAlias = int
CopyState = Callable[[State, State], None]


class StatePool:
    """Numbers of states, 0 to `num_states` - 1; snapshots make room for others, oldest first.

    What they stand for is in the memory of the parts that compute; `copy(source, target)` is
    theirs. A model without recurrent layers has none. `reclaim` is asked when no other is left: it
    gives back a state or returns False.
    """

    def __init__(self, num_states: int, copy: CopyState) -> None:
        self.num_states, self._copy = num_states, copy
        self.reclaim: Callable[[], bool] = lambda: False
        self._free: list[State] = list(reversed(range(num_states)))
        self._snapshots: dict[tuple[object, int], State] = {}

    @property
    def num_free(self) -> int:
        """States that nobody computes in; snapshots among them give way."""
        return len(self._free) + len(self._snapshots)

    def take(self) -> State:
        """A state of undefined contents; raises ContextFullError when there is none."""
        if self._free:
            return self._free.pop()
        if self._snapshots:
            return self._snapshots.pop(next(iter(self._snapshots)))
        if self.reclaim():
            return self._free.pop()
        raise ContextFullError(
            f"all {self.num_states} states of recurrent layers are in use by other sequences;"
            " reset one of them first"
        )

    def give_back(self, state: State) -> None:
        """Returns what `take` gave."""
        self._free.append(state)

    def remember(self, owner: object, position: int, state: State) -> None:
        """Keeps a copy for the owner, if there is room that no sequence computes in."""
        kept = self._snapshots.pop((owner, position), None)
        try:
            snapshot = self.take() if kept is None else kept
        except ContextFullError:
            return
        if kept is None:
            self._copy(state, snapshot)
        self._snapshots[owner, position] = snapshot

    def positions(self, owner: object) -> list[int]:
        """Where the owner's snapshots were taken."""
        return [position for each, position in self._snapshots if each is owner]

    def recall(self, owner: object, position: int, state: State) -> None:
        """Makes a state what the owner's was at a position; raises KeyError."""
        self._copy(self._snapshots[owner, position], state)

    def forget(self, owner: object, beyond: int) -> None:
        """Drops the owner's snapshots at positions larger than `beyond`."""
        for position in self.positions(owner):
            if position > beyond:
                self._free.append(self._snapshots.pop((owner, position)))
