"""The pages of the KV cache and the recurrent layers' state that one request computes in."""

from collections.abc import Sequence

import numpy as np

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.kv.pages import CachedPage, Cut, State
from sharpi.engine.kv.window_pages import HeldWindows
from sharpi.engine.scheduling.prefix_cache import Prefix, PrefixCache
from sharpi.engine.scheduling.state_snapshots import TableState
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.program import IntArray


class CutPages:
    """The pages of a cut, at which each head keeps only some KV positions of a prompt."""

    def __init__(self, cache: PrefixCache, cut: Cut) -> None:
        self._cache, self._cut = cache, cut
        self._pages: list[CachedPage] = []
        self.length, self.num_dropped = cut.length, cut.length - cut.num_kept

    def reserve(self) -> bool:
        """Reserves the pages of the kept positions; returns False if there are not enough."""
        while len(self._pages) < self._cut.num_pages:
            page = self._cache.grow(self._pages[-1] if self._pages else self._cache.private_root)
            if page is None:
                return False
            self._pages.append(page)
        return True

    @property
    def num_missing(self) -> int:
        return self._cut.num_pages - len(self._pages)

    def next_count(self, length: int, budget: int) -> int:
        """Returns the tokens of the next step; 0 if the window, one step, exceeds `budget`."""
        rest = self.length - length
        if rest <= 0:
            return budget
        if length < self._cut.window:
            return min(budget, self._cut.window - length)
        return rest if budget >= rest else 0

    def added_to(self, segment: Segment) -> Segment:
        """Returns `segment`, which ends at the cut, with the pages for the kept positions."""
        pages = np.array([page.page for page in self._pages], np.int32)
        return segment._replace(num_kept=self._cut.num_kept, kept_pages=pages)

    def take(self) -> list[CachedPage]:
        """Returns the pages of the kept positions, which are the caller's from now on."""
        pages, self._pages = self._pages, []
        return pages

    def release(self) -> None:
        """Gives back the reserved pages if the cut has not used them."""
        while self._pages:
            self._cache.release(self._pages.pop())


_WORTH_A_COPY = 4  # tokens; a shorter match in another request's page is computed again
_FIRST_ROW = np.zeros(1, np.int32)


class PageTable:
    """The pages of the `length` tokens computed so far, and pages reserved for next tokens.

    It begins with the longest cached prefix of `tokens`, but never has the last token, whose logits
    are wanted. The prefix cache has keys and values of the first `num_shared` tokens. With
    recurrent layers `length` may be smaller, as a state must be known after these tokens.

    At a `cut` each head keeps only some positions, which are copied to pages of this table alone.
    They are never found as a prefix; the prompt's whole pages before it stay in the prefix cache.
    """

    def __init__(
        self, cache: PrefixCache, tokens: Sequence[int], max_pages: int, cut: Cut | None = None
    ) -> None:
        self._cache = cache
        self._cut = None if cut is None else CutPages(cache, cut)
        self._num_dropped = 0
        self._path: list[CachedPage] = []
        self.pages = np.zeros(max_pages, np.int32)
        self.length = 0
        self._state: TableState | None = None
        # The queries of the window before a cut choose the positions to keep.
        known = tokens[:-1] if cut is None else tokens[: min(len(tokens) - 1, cut.window)]
        held = HeldWindows(cache.windows, self._path) if cache.windows.is_on else None
        self._windows: HeldWindows | None = held
        prefix, self.num_shared = cache.reuse(known)
        self._begin(prefix)
        if self._windows is not None:
            self._windows.hold(self.length, self.length)

    @property
    def num_pages(self) -> int:
        return len(self._path)

    def _begin(self, prefix: Prefix) -> None:
        for page in prefix.whole:
            self._cache.hold(page)
            self._append(page)
        self.length = len(self._path) * PAGE_POSITIONS
        known, rest = self._path[-1] if self._path else None, PAGE_POSITIONS
        if prefix.last is not None:
            if self._share_last(prefix.last, prefix.length - self.length):
                known, rest = prefix.last, prefix.length - self.length
                self.length = prefix.length
            elif self._cache.states.are_needed:
                known = None  # the state is known only where the copied page would have ended
        if self._cache.states.are_needed:
            self._restore_state(known, rest)
        elif self._cache.windows.is_on:
            self._cut_to_windows()

    def _cut_to_windows(self) -> None:
        """Shortens the prefix if sliding-window layers lack a page that the next token reads."""
        usable = self._cache.windows.usable([page.page for page in self._path], self.length)
        if usable < self.length:
            self._drop_from(usable // PAGE_POSITIONS)
            self.length = usable

    def _share_last(self, page: CachedPage, count: int) -> bool:
        """Appends a partly filled page if it is unused, or else a copy of its `count` tokens."""
        if page.is_evictable and len(page.tokens) == count:
            self._cache.before_change(page)
            self._cache.hold(page)
            self._append(page)
            return True
        if count < _WORTH_A_COPY and not self._cache.states.are_needed:
            return False
        self._cache.hold(page)
        copy = self._cache.grow(self._path[-1] if self._path else None)
        if copy is not None:
            self._cache.copy(page, count, copy)
            self._append(copy)
        self._cache.release(page)
        return copy is not None

    def _restore_state(self, page: CachedPage | None, offset: int) -> None:
        """Restores the recurrent state after `offset` tokens of the page."""
        try:
            self._state = TableState(self._cache.states, page if self.length else None, offset)
        except ContextFullError:
            self._drop_from(0)
            raise
        if not self._state.are_known:
            self._drop_from(0)
            self.length = 0

    def _append(self, page: CachedPage) -> None:
        self.pages[len(self._path)] = page.page
        self._path.append(page)

    def _drop_from(self, index: int) -> None:
        while len(self._path) > index:
            self._cache.release(self._path.pop())

    def reserve(self, count: int) -> bool:
        """Reserves pages for `count` more tokens; returns False if there are not enough."""
        end = self.length - self._num_dropped + count
        while len(self._path) * PAGE_POSITIONS < end:
            page = self._cache.grow(self._path[-1] if self._path else None)
            if page is None:
                return False
            self._append(page)
        return self._cut is None or self.length + count != self._cut.length or self._cut.reserve()

    def pages_to_come(self, num_tokens: int) -> int:
        """Returns the number of pages that are missing for `num_tokens` tokens and one more."""
        missing = (num_tokens - self._num_dropped) // PAGE_POSITIONS + 1 - len(self._path)
        of_cut = 0 if self._cut is None or self._num_dropped else self._cut.num_missing
        return max(0, missing + of_cut)

    def next_count(self, budget: int) -> int:
        """Returns the most tokens of the next step: `budget`, or fewer near a cut."""
        return budget if self._cut is None else self._cut.next_count(self.length, budget)

    def segment(
        self,
        ids: Sequence[int],
        outputs: IntArray | None,
        request: int = 0,
        num_drafts: int = 0,
    ) -> Segment:
        """Makes a segment of the next tokens, the last `num_drafts` drafts; `finish` must follow.

        `outputs` are the rows whose logits are wanted, None for the last. Until `finish` the
        recurrent layers' state is undefined. A lone conversation is one sequence over all its
        requests.
        """
        self.drop_rejected()
        if self._windows is not None:
            self._windows.hold(self.length, self.length + len(ids))
        state, after = None, tuple[State, ...]()
        if self._state is not None:
            state, after = self._state.now, self._state.begin_step(len(ids), num_drafts)
        if outputs is None:
            last = len(ids) - 1
            outputs = np.array([last], np.int32) if last else _FIRST_ROW
        sequence = request if self._cache.has_branches else 0
        segment = Segment(
            np.array(ids, np.int32), self.length, outputs, self.pages, state, sequence,
            num_drafts, after, self._num_dropped,
        )  # fmt: skip
        if self._cut is not None and self.length + len(ids) == self._cut.length:
            return self._cut.added_to(segment)
        return segment

    def finish(self, ids: Sequence[int]) -> None:
        if self._num_dropped:
            self.length += len(ids)
        else:
            self._record(ids)
        if self._state is not None:
            self._state.end_step(len(ids))
        if self._cut and self.length == self._cut.length and not self._num_dropped:
            self._drop(self._cut)
        if self._windows is not None:
            self._windows.hold(self.length, self.length)

    def _record(self, ids: Sequence[int]) -> None:
        at = 0
        while at < len(ids):
            index, offset = divmod(self.length, PAGE_POSITIONS)
            part = ids[at : at + PAGE_POSITIONS - offset]
            page = self._path[index]
            page.tokens.extend(part)
            self.length, at = self.length + len(part), at + len(part)
            if page.is_full:
                self._replace(index, self._cache.deduplicate(page))

    def _replace(self, index: int, page: CachedPage) -> None:
        if page is not self._path[index]:
            self._path[index] = page
            self.pages[index] = page.page
            if self._windows is not None:
                self._windows.replace(index)

    def _drop(self, cut: CutPages) -> None:
        """Switches to the pages of kept positions; saves and releases the prompt's pages."""
        self._cache.save(self._path)
        self._drop_from(0)
        for page in cut.take():
            self._append(page)
        self._num_dropped = cut.num_dropped

    def rewind(self, length: int) -> bool:
        """Shortens a text to `length` tokens; returns False unless these include a past cut."""
        if self._cut is None or not self._num_dropped or length < self._cut.length:
            return False
        self.length = length
        return True

    def drop_rejected(self) -> None:
        if self._state is not None:
            self._state.drop_rejected()

    def save_snapshot(self) -> None:
        """Keeps a snapshot of the recurrent layers' state for texts that begin the same."""
        if self._state is not None and self.length:
            self._state.save_snapshot(*self._last_place())

    @property
    def is_valid(self) -> bool:
        """True if more tokens can be computed; False if a failed step has spoilt the state."""
        return self._state is None or self._state.is_valid

    def release(self) -> None:
        """Gives back pages and state; computed pages stay in the prefix cache while it has room."""
        if self._state is not None:
            self._state.release(self._last_place() if self.length else None)
            self._state = None
        self._cache.save(self._path)
        if self._windows is not None:
            self._windows.release()
        self._drop_from(0)
        if self._cut is not None:
            self._cut.release()
        self.length = 0

    def _last_place(self) -> tuple[CachedPage, int]:
        """Returns the page of the last token, and how many tokens the page has up to it."""
        index, offset = divmod(self.length - 1, PAGE_POSITIONS)
        return self._path[index], offset + 1
