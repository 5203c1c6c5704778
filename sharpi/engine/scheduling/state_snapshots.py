"""States of recurrent layers: snapshots in the KV cache, and those that requests compute in."""

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from sharpi.engine.backends.model_part import HostBytes
from sharpi.engine.kv.pages import CachedPage, State
from sharpi.engine.runner import Runner

if TYPE_CHECKING:
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache


class StateSnapshots:
    """Snapshots of states by page and offset, evicted when a request needs a state."""

    def __init__(self, runner: Runner, disk: "PromptCache | None" = None) -> None:
        self._runner, self._pool, self._disk = runner, runner.states, disk
        self.of_drafts = runner.states_after
        self._pool.reclaimers.append(self._evict)
        self._states: OrderedDict[tuple[CachedPage, int], State] = OrderedDict()
        self.are_needed = self._pool.size > 0  # the model has recurrent layers

    def allocate(self, page: CachedPage | None, offset: int) -> tuple[State, bool]:
        """Returns a state, and True if it has a snapshot's contents; raises ContextFullError."""
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
        """Keeps a copy of the state after `offset` tokens of a page, if there is room for it."""
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
        if self._states:
            self._pool.free(self._take(*next(iter(self._states))))
            return True
        return False

    def _take(self, page: CachedPage, offset: int) -> State:
        if self._disk is not None:
            self._disk.queue.copy_or_drop_state(page.states[offset])
        del page.states[offset]
        return self._states.pop((page, offset))


class TableState:
    """The state `now` that a request computes in, and states after each token of a step.

    If `are_known`, it begins with the contents after `offset` tokens of `page`. `is_valid` is False
    from the beginning of a step to its end, as a failed step spoils the state, unless the step
    leaves a state after each token. Raises ContextFullError if all states are in use.
    """

    def __init__(self, snapshots: StateSnapshots, page: CachedPage | None, offset: int) -> None:
        self._snapshots, self._of_drafts = snapshots, snapshots.of_drafts
        self.now, self.are_known = self._snapshots.allocate(page, offset)
        self.after: deque[State] = deque()  # the tokens of the current step
        self.is_valid = True
        # The snapshot that this request continues from, if no other request does.
        is_alone = page is not None and page.num_users == 1 and not page.children
        is_alone = is_alone and page is not None and len(page.tokens) == offset
        self._origin = (page, offset) if page is not None and is_alone else None

    def begin_step(self, num_tokens: int, num_drafts: int) -> tuple[State, ...]:
        """Begins a step; returns the states to store after each token, empty without drafts."""
        if num_drafts:
            self.after.extend(self._of_drafts.allocate() for _ in range(num_tokens))
        self.is_valid = bool(self.after)
        return tuple(self.after)

    def end_step(self, num_tokens: int) -> None:
        """Makes `now` the state after `num_tokens` further tokens of the step."""
        self.is_valid = True
        for _ in range(num_tokens if self.after else 0):
            self._of_drafts.free(self.now)
            self.now = self.after.popleft()

    def drop_rejected(self) -> None:
        while self.after:
            self._of_drafts.free(self.after.popleft())

    def save_snapshot(self, page: CachedPage, offset: int) -> None:
        """Keeps a snapshot, after `offset` tokens of the page, for texts that begin the same."""
        self._snapshots.save_copy(page, offset, self.now)

    def release(self, place: tuple[CachedPage, int] | None) -> None:
        """Gives up the state; a valid one becomes the snapshot at `place`, None without tokens."""
        self.drop_rejected()
        if not self.is_valid or place is None:
            self._snapshots.free(self.now)
            return
        self._snapshots.save(*place, self.now)
        if self._origin is not None and self._origin != place:
            self._snapshots.supersede(*self._origin)
