"""Snapshots of the recurrent layers' state after some of the tokens in the KV cache."""

from collections import OrderedDict

from sharpi.engine.backends.model_part import HostBytes
from sharpi.engine.kv.pages import CachedPage, State
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner


class StateSnapshots:
    """Snapshots of states, by page and number of that page's tokens, in the order of eviction.

    Snapshots are evicted when a request needs a state to compute in.
    """

    def __init__(self, runner: Runner, disk: PromptCache | None = None) -> None:
        self._runner, self._pool, self._disk = runner, runner.states, disk
        self._pool.reclaimers.append(self._evict)
        self._states: OrderedDict[tuple[CachedPage, int], State] = OrderedDict()
        self.are_needed = self._pool.size > 0  # the model has recurrent layers

    def allocate(self, page: CachedPage | None, offset: int) -> tuple[State, bool]:
        """Returns a state to compute in, and True if a snapshot was copied to it.

        The snapshot is the one after `offset` tokens of the page. Raises ContextFullError when all
        states are in use.
        """
        if page is None:
            return self._pool.allocate(), False
        place = page, offset
        self._states.move_to_end(place)
        state = self._pool.allocate()
        if place not in self._states:
            return state, False
        self._runner.memory.copy_state(self._states[place], state)
        return state, True

    def free(self, state: State) -> None:
        """Frees a state from `allocate` without keeping its contents."""
        self._pool.free(state)

    def save_copy(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps a copy of the state after `offset` tokens of a page, if a state can be had for it.

        Other snapshots may be evicted for that.
        """
        has_room = self._pool.num_free or self._states
        if offset not in page.states and has_room:
            kept = self._pool.allocate()
            self._runner.memory.copy_state(state, kept)
            self.save(page, offset, kept)

    def save(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps `state` itself as the snapshot; the caller must not compute in it any more."""
        if offset in page.states:
            self._pool.free(self._take(page, offset))
        page.states[offset] = self._states[page, offset] = state

    def supersede(self, page: CachedPage, offset: int) -> None:
        """Makes this snapshot the next to be evicted, since a later one of its text is kept."""
        if (page, offset) in self._states:
            self._states.move_to_end((page, offset), last=False)

    def move(self, page: CachedPage, other: CachedPage) -> None:
        """Moves the snapshots of a page to another one with the same tokens."""
        for offset in list(page.states):
            self.save(other, offset, self._take(page, offset))

    def drop(self, page: CachedPage, beyond: int = 0) -> None:
        """Frees the page's snapshots of states after more than `beyond` of its tokens."""
        for offset in [offset for offset in page.states if offset > beyond]:
            self._pool.free(self._take(page, offset))

    def restore(self, page: CachedPage, offset: int, data: HostBytes) -> bool:
        """Keeps a state that was read from disk; returns False if all states are in use."""
        if not (self._pool.num_free or self._states):
            return False
        state = self._pool.allocate()
        self._runner.memory.write_state(state, data)
        self.save(page, offset, state)
        return True

    def _evict(self) -> bool:
        """Frees the snapshot that is first in the order of eviction; returns False without any."""
        if self._states:
            self._pool.free(self._take(*next(iter(self._states))))
            return True
        return False

    def _take(self, page: CachedPage, offset: int) -> State:
        if self._disk is not None:
            self._disk.before_state_change(page.states[offset])
        del page.states[offset]
        return self._states.pop((page, offset))
