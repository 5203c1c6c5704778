"""The pages of the KV cache as a tree of prefixes: who shares which, and which go first.

A page stays after its answer has ended, until another one needs room: the least recently used
goes, from the ends of conversations on.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.cached_page import CachedPage
from sharpi.engine.scheduling.kept_states import KeptStates
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class Prefix(NamedTuple):
    """What is there of some tokens: whole pages, then a part of `last`; `length` tokens in all."""

    whole: list[CachedPage]
    last: CachedPage | None
    length: int


class PrefixCache:
    """All pages of one runner, whether in use or kept, and the `states` that belong to them.

    For the engine's thread only.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._root = CachedPage(-1, None)
        self._clock = count(1)
        self._leaving: list[tuple[int, int, CachedPage]] = []  # a heap; old entries are skipped
        self.states = KeptStates(runner)
        self.num_kept = 0
        runner.pages.reclaim = self._evict

    @property
    def num_pages(self) -> int:
        """Pages in all."""
        return self._runner.pages.num_pages

    @property
    def num_available(self) -> int:
        """Pages that are free, or kept for nobody in particular."""
        return self._runner.pages.num_free + self.num_kept

    @property
    def num_in_use(self) -> int:
        """Pages of answers that are running, those of sequences of other owners among them."""
        return self.num_pages - self.num_available

    def find(self, tokens: Sequence[int]) -> Prefix:
        """The longest prefix that is there; with recurrent layers see `cut_to_state`."""
        page, whole, length = self._root, list[CachedPage](), 0
        while True:
            child, same = page.best_child(tokens[length : length + PAGE_POSITIONS])
            length += same
            if child is None or same < PAGE_POSITIONS:
                return Prefix(whole, child, length)
            whole.append(child)
            page = child

    def cut_to_state(self, prefix: Prefix, tokens: Sequence[int]) -> Prefix:
        """As much of what `find` gave as ends where the recurrent layers' state is known."""
        parents = [self._root, *prefix.whole]
        for index in reversed(range(len(parents))):
            begin = index * PAGE_POSITIONS
            rest = tokens[begin : min(prefix.length, begin + PAGE_POSITIONS)]
            offset, page = parents[index].last_known_state(rest)
            if page is not None:
                whole = prefix.whole[:index]
                if offset == PAGE_POSITIONS:
                    return Prefix([*whole, page], None, begin + offset)
                return Prefix(whole, page, begin + offset)
        return Prefix([], None, 0)

    def hold(self, page: CachedPage) -> None:
        """One answer more has the page."""
        self.num_kept -= page.num_users == 0
        page.num_users += 1

    def let_go(self, page: CachedPage) -> None:
        """One answer less; without any it may go, and goes at once where it holds nothing."""
        page.num_users -= 1
        page.last_use = next(self._clock)
        self.num_kept += page.num_users == 0
        if page.can_go and not page.tokens:
            self._remove(page)
        self._offer(page)

    def grow(self, parent: CachedPage | None) -> CachedPage | None:
        """A page after another one, held by its asker; None where all are in use."""
        taken = self._runner.pages.take()
        if taken is None:
            return None
        page = CachedPage(taken, parent or self._root)
        page.num_users = 1
        page.parent.children.append(page)  # type: ignore[union-attr]
        return page

    def seal(self, page: CachedPage) -> CachedPage:
        """A page has become full: the one to use from now on, another of the same tokens if any."""
        assert page.parent is not None
        for other in page.parent.children:
            if other is not page and other.tokens == page.tokens:
                self._join(page, other)
                return other
        return page

    def _join(self, page: CachedPage, other: CachedPage) -> None:
        """The page's only user gets the other one instead, with what it has reserved after it."""
        self.hold(other)
        for child in page.children:
            child.parent = other
        other.children += page.children
        page.children = []
        self.states.move(page, other)
        page.num_users = 0
        self.num_kept += 1
        self._remove(page)

    def copy(self, source: CachedPage, length: int, target: CachedPage) -> None:
        """Makes the first `length` positions of a page those of another."""
        self._runner.copy_page(source.page, target.page)
        target.tokens[:] = source.tokens[:length]

    def clear(self) -> None:
        """Drops all that nobody uses."""
        while self._evict():
            pass

    def pages(self) -> Iterator[CachedPage]:
        """Those in use and those kept."""
        waiting = list(self._root.children)
        while waiting:
            page = waiting.pop()
            yield page
            waiting += page.children

    def _offer(self, page: CachedPage) -> None:
        if page.can_go and page.parent is not None:
            heapq.heappush(self._leaving, (page.last_use, next(self._clock), page))

    def _evict(self) -> bool:
        """Lets the least recently used page go; False where all are in use."""
        while self._leaving:
            last_use, _, page = heapq.heappop(self._leaving)
            if page.can_go and page.parent is not None and page.last_use == last_use:
                parent = page.parent
                self._remove(page)
                self._offer(parent)
                return True
        return False

    def _remove(self, page: CachedPage) -> None:
        assert page.parent is not None
        self.states.drop(page)
        page.parent.children.remove(page)
        page.parent = None
        self._runner.pages.give_back([page.page])
        self.num_kept -= 1
