"""StatePool: hands out the numbers of the recurrent layers' states."""

from sharpi.engine.kv.pages import Pool, State
from sharpi.errors import ContextFullError


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
