"""HeadDrafter: drafts for one sequence by the model's head for multi-token prediction (MTP)."""

from collections.abc import Sequence as Ids
from contextlib import suppress

import numpy as np

from sharpi.engine.backends.draft_head import DraftHead, HeadOutput
from sharpi.engine.backends.model_part import Values
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.errors import ModelFileError
from sharpi.ops.cpu.program import IntArray
from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft, likely_draft

_MOST_WAITING = 1024  # hidden states of decoded tokens


class HeadDrafter:
    """Drafts the tokens that the head finds most likely.

    The head has its own keys and values for the same positions as the model. After each step the
    drafter receives the hidden states of all tokens but rejected drafts. In a prompt the head
    processes them at once; in decoding only when it drafts, or when many are waiting. So a head
    whose drafts are not wanted costs nothing. Its keys and values are kept in the model's pages,
    and shared with them. Those at the last position of a shared prefix may have been computed with
    another next token, which only makes drafts less accurate.

    Gemma 4's assistant has no keys and values, and drafts all tokens at one position.

    A draft ends before a token less likely than `min_probability`, or outside the vocabulary.
    """

    kind: DraftKind = "mtp"
    is_free = False

    def __init__(self, head: DraftHead, vocab_size: int, min_probability: float) -> None:
        self._head, self._vocab_size, self._least = head, vocab_size, min_probability
        self._table: PageTable | None = None
        self._first = 0  # the position of the first of the hidden states that wait
        self._waiting: list[Values] = []
        self._num_waiting = 0
        self._tokens: Ids[int] = ()  # of the whole sequence, which grows

    def extend(self, tokens: Ids[int]) -> None:
        """Does nothing: `computed` receives the tokens together with their hidden states."""

    def computed(
        self, table: PageTable, first: int, hidden: Values, tokens: Ids[int], *, is_prompt: bool
    ) -> None:
        """Copies the hidden states (tokens, hidden) from position `first` on, for later drafts.

        `tokens` is the list of the whole sequence's tokens; the caller may append the token after
        the last hidden state later.
        """
        if table is not self._table or first != self._first + self._num_waiting:
            self._table, self._first = table, first
            self._waiting, self._num_waiting = [], 0
        self._tokens = tokens
        self._waiting.append(hidden.copy())
        self._num_waiting += len(hidden)
        if self._num_waiting > (1 if is_prompt else _MOST_WAITING):
            with suppress(ModelFileError):
                self._fill(table)

    def _fill(self, table: PageTable) -> None:
        """Computes the head's keys and values from all waiting hidden states but the last."""
        hidden, count = np.concatenate(self._waiting), self._num_waiting - 1
        self._head.fill(self._next_ids(count), self._first, table.pages, hidden[:count])
        self._first, self._num_waiting = self._first + count, 1
        self._waiting = [hidden[count:].copy()]

    def _next_ids(self, count: int) -> IntArray:
        """Returns the token after each of the first `count` waiting hidden states."""
        return np.array(self._tokens[self._first + 1 : self._first + 1 + count], np.int32)

    def propose(self, most: int) -> Draft | None:
        table, end = self._table, self._first + self._num_waiting
        most = min(most, self._head.context_size - end)
        is_ready = self._num_waiting > 0 and len(self._tokens) == end + 1
        if table is None or not is_ready or most <= 0:
            return None
        with suppress(ModelFileError):  # which the model's own step would raise, too
            return self._drafted(table, most)
        return None

    def _drafted(self, table: PageTable, most: int) -> Draft | None:
        """Runs the head over the waiting hidden states, then over its own drafts."""
        found = self._first_prediction(table)
        at, step = self._first - 1, int(self._head.follows_drafts)

        def after(token: int) -> Values:
            nonlocal found, at
            ids, at = np.array([token], np.int32), at + step
            found = self._head.predict(ids, at, table.pages, found.hidden[None].copy())
            return found.logits

        return likely_draft(self.kind, found.logits, after, most, self._vocab_size, self._least)

    def _first_prediction(self, table: PageTable) -> HeadOutput:
        """Runs the head over all waiting hidden states, clears them, and returns its output."""
        ids, hidden = self._next_ids(self._num_waiting), np.concatenate(self._waiting)
        found = self._head.predict(ids, self._first, table.pages, hidden)
        self._first, self._num_waiting = self._first + len(ids), 0
        self._waiting = []
        return found

    def close(self) -> None:
        """Forgets the sequence."""
        self._table, self._waiting, self._num_waiting, self._tokens = None, [], 0, ()
