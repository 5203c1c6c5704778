"""StatePool: allocates the numbers of the recurrent layers' states."""

from sharpi.engine.kv.pages import Pool, State
from sharpi.errors import ContextFullError
from sharpi.ops.recurrent import num_draft_states, num_states
from sharpi.tiers.settings import EngineSettings


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


def state_pools(settings: EngineSettings, *, has_states: bool) -> tuple[StatePool, StatePool]:
    """Returns the sequences' states and snapshots, and the states after each token of a check."""
    if not has_states:
        return StatePool(0), StatePool(0)
    count = num_states(settings.num_parallel)
    num_after = num_draft_states(settings.num_parallel, settings.max_drafts)
    return StatePool(count), StatePool(num_after, first=count)
