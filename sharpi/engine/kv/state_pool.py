"""StatePool: hands out copies of the recurrent layers' state, numbered alike in all layers."""

from collections.abc import Callable
from typing import TypeAlias

from sharpi.errors import ContextFullError

State: TypeAlias = int


class StatePool:
    """Hands out `num_states` numbers, from `first` on, and takes them back.

    The memory of each state belongs to the model's parts. A model without recurrent layers has no
    states. `reclaimers` are called in turn when no state is free. Each may give back the state of a
    snapshot, and returns True if it did.
    """

    def __init__(self, num_states: int, first: int = 0) -> None:
        self.num_states = num_states
        self.reclaimers: list[Callable[[], bool]] = []
        self._free: list[State] = list(reversed(range(first, first + num_states)))

    @property
    def num_free(self) -> int:
        """The number of free states."""
        return len(self._free)

    def take(self) -> State:
        """Hands out a state of undefined contents; raises ContextFullError when there is none."""
        if self._free or any(reclaim() for reclaim in self.reclaimers):
            return self._free.pop()
        raise ContextFullError(
            f"all {self.num_states} states of recurrent layers are in use by other sequences;"
            " reset one of them first"
        )

    def give_back(self, state: State) -> None:
        """Returns a state to the pool."""
        self._free.append(state)
