"""StatePool: allocates the numbers of the recurrent layers' states."""

from sharpi.engine.kv.pages import Pool, State
from sharpi.errors import ContextFullError


class StatePool(Pool):
    """A pool of the recurrent layers' states; empty for a model without such layers."""

    def allocate(self) -> State:
        """Returns a free state of undefined contents; raises ContextFullError if all are in use."""
        state = super().allocate()
        if state is None:
            raise ContextFullError(
                f"all {self.size} states of recurrent layers are in use by other sequences; reset"
                " one of them first"
            )
        return state
