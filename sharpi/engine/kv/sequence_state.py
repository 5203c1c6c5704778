"""What the recurrent layers carry of one sequence, and how it is taken back to an earlier token."""

from sharpi.engine.kv.state_pool import State, StatePool

# A template often writes the end of a prompt anew once it is history; what comes before stays.
REWRITTEN_TOKENS = 16
LONG_PROMPT = 256  # tokens that are worth a pass and a snapshot, so as never to be computed twice


class SequenceState:
    """One state that goes with the tokens, and snapshots; none in a model without such layers.

    `position`: tokens that the state has seen; None while a step is under way, or after one failed.
    """

    def __init__(self, pool: StatePool) -> None:
        self._pool = pool
        self._live: State | None = None
        self.position: int | None = 0

    @property
    def is_empty(self) -> bool:
        """Whether the model has no recurrent layers."""
        return self._pool.num_states == 0

    def begin(self) -> State | None:
        """The state that a step changes; `finish` must follow. Raises ContextFullError."""
        if self.is_empty:
            return None
        if self._live is None:
            self._live = self._pool.take()
        self.position = None
        return self._live

    def finish(self, position: int) -> None:
        """The step has been done: the state has seen all tokens before `position`."""
        self.position = position

    def remember(self) -> None:
        """Keeps a snapshot, so that a later `rewind` finds this position."""
        if self._live is not None and self.position:
            self._pool.remember(self, self.position, self._live)

    def rewind(self, length: int) -> int:
        """Goes back to the last known state of at most `length` tokens; returns its position."""
        if self.is_empty:
            return length
        self._pool.forget(self, beyond=length)
        if self.position is None or self.position > length:
            self.position = max(self._pool.positions(self), default=0)
            if self._live is not None and self.position:
                self._pool.recall(self, self.position, self._live)
        if length == 0 and self._live is not None:
            self._pool.give_back(self._live)
            self._live = None
        return self.position
