"""The pages of the KV cache as a tree of prefixes: who shares which, and which go first.

A page stays after its answer has ended, until another one needs room: the least recently used
goes, from the ends of conversations on. So do the states of recurrent layers at some positions.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from sharpi.engine.cached_page import CachedPage
from sharpi.engine.runner import Runner
from sharpi.engine.state_pool import State
from sharpi.ops.kv_cache import PAGE_POSITIONS


class Prefix(NamedTuple):
    """What is there of some tokens: whole pages, then a part of `last`; `length` tokens in all."""

    whole: list[CachedPage]
    last: CachedPage | None
    length: int


class PrefixCache:
    """All pages and states of one runner, whether in use or kept; the engine's thread only."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._root = CachedPage(-1, None)
        self._clock = count(1)
        self._leaving: list[tuple[int, int, CachedPage]] = []  # a heap; old entries are skipped
        self._states: OrderedDict[tuple[CachedPage, int], State] = OrderedDict()  # next to go first
        self.num_kept = 0
        runner.pages.reclaim, runner.states.reclaim = self._evict, self._evict_state

    @property
    def keeps_states(self) -> bool:
        """Whether the model has recurrent layers."""
        return self._runner.states.num_states > 0

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
        for offset in list(page.states):
            state = self._forget_state(page, offset)
            self._keep_state(other, offset, state)
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
        for offset in list(page.states):
            self._runner.states.give_back(self._forget_state(page, offset))
        page.parent.children.remove(page)
        page.parent = None
        self._runner.pages.give_back([page.page])
        self.num_kept -= 1

    def _evict_state(self) -> bool:
        """Lets the least recently used state go; False where there is none."""
        if self._states:
            self._runner.states.give_back(self._forget_state(*next(iter(self._states))))
            return True
        return False

    def give_back_state(self, state: State) -> None:
        """Returns what `state_for` gave."""
        self._runner.states.give_back(state)

    def remember(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps a copy of the state after `offset` tokens of a page, if there is room."""
        has_room = self._runner.states.num_free or self._states
        if offset not in page.states and has_room:
            kept = self._runner.states.take()
            self._runner.copy_state(state, kept)
            self._keep_state(page, offset, kept)

    def hand_over(self, page: CachedPage, offset: int, state: State) -> None:
        """Keeps the state itself, which nobody goes on with."""
        self._keep_state(page, offset, state)

    def supersede(self, page: CachedPage, offset: int) -> None:
        """A conversation has gone on from there, to where its state is known, too."""
        if (page, offset) in self._states:
            self._states.move_to_end((page, offset), last=False)

    def state_for(self, page: CachedPage | None, offset: int) -> tuple[State, bool]:
        """A state to go on with after `offset` tokens of a page, and whether it is that.

        Raises ContextFullError when all are in use.
        """
        if page is None:
            return self._runner.states.take(), False
        place = page, offset
        self._states.move_to_end(place)
        state = self._runner.states.take()
        if place not in self._states:
            return state, False
        self._runner.copy_state(self._states[place], state)
        return state, True

    def _keep_state(self, page: CachedPage, offset: int, state: State) -> None:
        if offset in page.states:
            self._runner.states.give_back(self._forget_state(page, offset))
        page.states[offset] = self._states[page, offset] = state

    def _forget_state(self, page: CachedPage, offset: int) -> State:
        del page.states[offset]
        return self._states.pop((page, offset))
