"""What one answer has of the KV cache and of the recurrent layers' states while it runs."""

from collections.abc import Sequence

import numpy as np

from sharpi.engine.kv.state_pool import State
from sharpi.engine.scheduling.cached_page import CachedPage
from sharpi.engine.scheduling.prefix_cache import Prefix, PrefixCache
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

_WORTH_A_COPY = 4  # tokens of a page that others write, or that they share no more of


class PageTable:
    """The pages of the first `length` tokens, which are computed, and of some more to come.

    Begins with what the prefix cache has of `tokens`, the last one excepted: its logits are wanted.
    `num_shared`: tokens that were found there, `length` of them with all that goes on from them.
    """

    def __init__(self, cache: PrefixCache, tokens: Sequence[int], max_pages: int) -> None:
        self._cache = cache
        self._path: list[CachedPage] = []
        self.pages = np.zeros(max_pages, np.int32)
        self.length = 0
        self.state: State | None = None
        self._is_sound = True
        self._origin: tuple[CachedPage, int] | None = (
            None  # the state that nobody else goes on from
        )
        prefix = cache.find(tokens[:-1])
        self.num_shared = prefix.length
        self._begin(cache.cut_to_state(prefix, tokens) if cache.states.are_needed else prefix)

    @property
    def num_pages(self) -> int:
        """Pages that it has."""
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
            self._recall(known, rest)

    def _share_last(self, page: CachedPage, count: int) -> bool:
        """Goes on writing a page that was left so, or a copy of its beginning."""
        if page.can_go and len(page.tokens) == count:
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
        self._cache.let_go(page)
        return copy is not None

    def _recall(self, page: CachedPage | None, offset: int) -> None:
        try:
            found = page if self.length else None
            self.state, is_known = self._cache.states.take(found, offset)
        except ContextFullError:
            self._drop_from(0)
            raise
        if found and found.num_users == 1 and not found.children and len(found.tokens) == offset:
            self._origin = found, offset
        if not is_known:
            self._drop_from(0)
            self.length = 0

    def _append(self, page: CachedPage) -> None:
        self.pages[len(self._path)] = page.page
        self._path.append(page)

    def _drop_from(self, index: int) -> None:
        while len(self._path) > index:
            self._cache.let_go(self._path.pop())

    def reserve(self, count: int) -> bool:
        """Sees to pages for so many more tokens; False where there are none."""
        needed = -(-(self.length + count) // PAGE_POSITIONS)
        while len(self._path) < needed:
            page = self._cache.grow(self._path[-1] if self._path else None)
            if page is None:
                return False
            self._append(page)
        return True

    def begin(self) -> None:
        """A step is under way: until `finish` the recurrent layers' state is of no use."""
        self._is_sound = False

    def finish(self, ids: Sequence[int]) -> None:
        """These tokens have been computed."""
        self._is_sound = True
        at = 0
        while at < len(ids):
            index, offset = divmod(self.length, PAGE_POSITIONS)
            part = ids[at : at + PAGE_POSITIONS - offset]
            page = self._path[index]
            page.tokens.extend(part)
            self.length, at = self.length + len(part), at + len(part)
            if page.is_full:
                self._path[index] = self._cache.seal(page)
                self.pages[index] = self._path[index].page

    def remember(self) -> None:
        """Keeps what the recurrent layers carry now for others that begin the same."""
        if self.state is not None and self.length:
            self._cache.states.remember(*self._last_place(), self.state)

    @property
    def is_sound(self) -> bool:
        """Whether it can go on where it is, even if a step has failed."""
        return self._is_sound or self.state is None

    def release(self) -> None:
        """Gives everything back; what is computed stays in the prefix cache for a while."""
        if self.state is not None:
            if self._is_sound and self.length:
                self._cache.states.hand_over(*self._last_place(), self.state)
                if self._origin is not None and self._origin != self._last_place():
                    self._cache.states.supersede(*self._origin)
            else:
                self._cache.states.give_back(self.state)
            self.state = None
        self._drop_from(0)
        self.length = 0

    def _last_place(self) -> tuple[CachedPage, int]:
        """The page of the last token, and how many there are in it up to that."""
        index, offset = divmod(self.length - 1, PAGE_POSITIONS)
        return self._path[index], offset + 1
