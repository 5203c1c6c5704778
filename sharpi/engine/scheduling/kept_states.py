"""What recurrent layers carry after some of the tokens in the cache, for others to go on from."""

from collections import OrderedDict

from sharpi.engine.kv.state_pool import State
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.cached_page import CachedPage


class KeptStates:
    """States by page, and by how many of its tokens they have seen; the first in order goes first.

    They give way to those that answers compute in.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, self._pool = runner, runner.states
        self._pool.reclaim = self._evict
        self._states: OrderedDict[tuple[CachedPage, int], State] = OrderedDict()

    @property
    def are_needed(self) -> bool:
        """Whether the model has recurrent layers."""
        return self._pool.num_states > 0

    def take(self, page: CachedPage | None, offset: int) -> tuple[State, bool]:
        """A state to go on with after `offset` tokens of a page, and whether it is that.

        Raises ContextFullError when all are in use.
        """
        if page is None:
            return self._pool.take(), False
        place = page, offset
        self._states.move_to_end(place)
        state = self._pool.take()
        if place not in self._states:
            return state, False
        self._runner.copy_state(self._states[place], state)
        return state, True

    def give_back(self, state: State) -> None:
        """Returns what `take` gave, and nobody is to find."""
        self._pool.give_back(state)

    def remember(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps a copy of the state after `offset` tokens of a page, if there is room."""
        has_room = self._pool.num_free or self._states
        if offset not in page.states and has_room:
            kept = self._pool.take()
            self._runner.copy_state(state, kept)
            self.hand_over(page, offset, kept)

    def hand_over(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps the state itself, which nobody goes on with."""
        if offset in page.states:
            self._pool.give_back(self._forget(page, offset))
        page.states[offset] = self._states[page, offset] = state

    def supersede(self, page: CachedPage, offset: int) -> None:
        """A conversation has gone on from there, to where its state is known, too."""
        if (page, offset) in self._states:
            self._states.move_to_end((page, offset), last=False)

    def move(self, page: CachedPage, other: CachedPage) -> None:
        """What was known of a page is known of another one with the same tokens."""
        for offset in list(page.states):
            self.hand_over(other, offset, self._forget(page, offset))

    def drop(self, page: CachedPage) -> None:
        """The page goes."""
        for offset in list(page.states):
            self._pool.give_back(self._forget(page, offset))

    def _evict(self) -> bool:
        """Lets one go; False where there is none."""
        if self._states:
            self._pool.give_back(self._forget(*next(iter(self._states))))
            return True
        return False

    def _forget(self, page: CachedPage, offset: int) -> State:
        del page.states[offset]
        return self._states.pop((page, offset))
