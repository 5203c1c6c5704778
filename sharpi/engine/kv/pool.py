"""Pool: hands out the numbers of KV pages, or of the recurrent layers' states, alike in all layers.

The memory belongs to the model's parts.
"""

from collections.abc import Callable
from typing import TypeAlias

from sharpi.errors import ContextFullError

State: TypeAlias = int


class Pool:
    """Hands out `size` numbers, from `first` on, and takes them back.

    `reclaimers` are called in turn when no number is free. Each may give one back that is only
    cached, and returns True if it did.
    """

    def __init__(self, size: int, first: int = 0) -> None:
        self.size = size
        self.reclaimers: list[Callable[[], bool]] = []
        self._free = list(reversed(range(first, first + size)))

    @property
    def num_free(self) -> int:
        """The count of free numbers."""
        return len(self._free)

    def take(self) -> int | None:
        """Hands out a free number; None when all are in use."""
        if self._free or any(reclaim() for reclaim in self.reclaimers):
            return self._free.pop()
        return None

    def give_back(self, *numbers: int) -> None:
        """Returns numbers to the pool."""
        self._free.extend(numbers)


class StatePool(Pool):
    """The states of recurrent layers; a model without such layers has none."""

    def take(self) -> State:
        """Hands out a state of undefined contents; raises ContextFullError when there is none."""
        state = super().take()
        if state is None:
            raise ContextFullError(
                f"all {self.size} states of recurrent layers are in use by other sequences; reset"
                " one of them first"
            )
        return state
