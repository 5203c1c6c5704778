"""TableState: the recurrent layers' state that one request computes in, and those of a step."""

from collections import deque

from sharpi.engine.kv.pages import CachedPage, State
from sharpi.engine.scheduling.prefix_cache import PrefixCache


class TableState:
    """The state `now` that a request computes in, and states after each token of a step.

    If `are_known`, it begins with the contents after `offset` tokens of `page`. `is_valid` is False
    from the beginning of a step to its end, as a failed step spoils the state, unless the step
    leaves a state after each token. Raises ContextFullError if all states are in use.
    """

    def __init__(self, cache: PrefixCache, page: CachedPage | None, offset: int) -> None:
        self._snapshots, self._of_drafts = cache.states, cache.states_after
        self.now, self.are_known = self._snapshots.allocate(page, offset)
        self.after: deque[State] = deque()  # the tokens of the current step
        self.is_valid = True
        # The snapshot that this request continues from, if no other request does.
        is_alone = page is not None and page.num_users == 1 and not page.children
        is_alone = is_alone and page is not None and len(page.tokens) == offset
        self._origin = (page, offset) if page is not None and is_alone else None

    def begin_step(self, num_tokens: int, num_drafts: int) -> tuple[State, ...]:
        """Begins a step; returns the states to store after each of its tokens.

        The result is empty if the step has no drafts.
        """
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
        """Frees the states after drafts that were not accepted."""
        while self.after:
            self._of_drafts.free(self.after.popleft())

    def save_snapshot(self, page: CachedPage, offset: int) -> None:
        """Keeps a snapshot, after `offset` tokens of the page, for texts that begin the same."""
        self._snapshots.save_copy(page, offset, self.now)

    def release(self, place: tuple[CachedPage, int] | None) -> None:
        """Gives up the state; a valid one is kept as a snapshot at `place`.

        `place` is the last token's page, and the number of its tokens; None without tokens.
        """
        self.drop_rejected()
        if not self.is_valid or place is None:
            self._snapshots.free(self.now)
            return
        self._snapshots.save(*place, self.now)
        if self._origin is not None and self._origin != place:
            self._snapshots.supersede(*self._origin)
