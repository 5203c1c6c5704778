"""The pages of the KV cache as a tree of prefixes, which requests share and LRU evicts.

A page stays after its request has ended, until another request needs room: the least recently used
page is evicted, beginning at the ends of conversations.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sharpi.engine.backends.model_part import HostBytes
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.state_snapshots import StateSnapshots
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

if TYPE_CHECKING:
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache


class Prefix(NamedTuple):
    """The cached beginning of some tokens: `whole` pages, a part of `last`, `length` in all."""

    whole: list[CachedPage]
    last: CachedPage | None
    length: int


class PrefixCache:
    """The KV pages of one scheduler or conversation, in use or kept, and the `states` after them.

    With `has_branches` it keeps different continuations of the same beginning. Without, as for a
    lone conversation, it keeps only the newest text. The pages of ended texts are saved to `disk`,
    and read from it again. For the engine's thread only.
    """

    def __init__(
        self, runner: Runner, *, has_branches: bool = True, disk: "PromptCache | None" = None
    ) -> None:
        self._runner, self.has_branches, self.disk = runner, has_branches, disk
        self.root = CachedPage(-1, None)
        # Pages after this one are their user's alone: no text is ever found there.
        self.private_root = CachedPage(-1, None)
        self._clock = count(1)
        self._evictable: list[tuple[int, int, CachedPage]] = []  # a heap; old entries are skipped
        self.states = StateSnapshots(runner, disk)
        self.windows = runner.windows
        self.num_evictable = 0
        self._by_number: dict[int, CachedPage] = {}
        runner.pages.reclaimers.append(self._evict)
        if disk is not None:
            runner.windows.watchers.append(self._save_before_window_drop)

    @property
    def num_pages(self) -> int:
        return self._runner.pages.size

    @property
    def num_available(self) -> int:
        return self._runner.pages.num_free + self.num_evictable

    @property
    def num_in_use(self) -> int:
        """The number of pages that running requests use, or that other prefix caches have taken."""
        return self.num_pages - self.num_available

    def reuse(self, tokens: Sequence[int]) -> tuple[Prefix, int]:
        """Returns the usable prefix of `tokens`, which may be shorter, and how many are cached."""
        found = prefix = self.find(tokens)
        if self.states.are_needed:
            prefix = self.cut_to_state(found, tokens)
        elif self.windows.is_on:
            prefix = self.cut_to_windows(found)
        if not self.has_branches:
            self._prune(prefix)
        return prefix, found.length

    def find(self, tokens: Sequence[int]) -> Prefix:
        """Returns the longest prefix of `tokens` whose keys and values are in the cache."""
        page, whole, length = self.root, list[CachedPage](), 0
        while True:
            child, same = page.best_child(tokens[length : length + PAGE_POSITIONS])
            length += same
            if child is None or same < PAGE_POSITIONS:
                return Prefix(whole, child, length)
            whole.append(child)
            page = child

    def cut_to_state(self, prefix: Prefix, tokens: Sequence[int]) -> Prefix:
        parents = [self.root, *prefix.whole]
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

    def cut_to_windows(self, prefix: Prefix) -> Prefix:
        """Cuts the prefix to where the next token finds all positions of its sliding windows."""
        path = [*prefix.whole, *([prefix.last] if prefix.last else [])]
        length = self.windows.usable([page.page for page in path], prefix.length)
        if length == prefix.length:
            return prefix
        return Prefix(prefix.whole[: length // PAGE_POSITIONS], None, length)

    def _prune(self, prefix: Prefix) -> None:
        """Gives back the pages that the prefix does not need, and shortens its last page."""
        needed = {*prefix.whole, prefix.last}
        for page in reversed(list(self.pages())):  # the last pages first
            if page not in needed and page.is_evictable:
                self._remove(page)
        if prefix.last is not None and prefix.last.is_evictable:
            rest = prefix.length - len(prefix.whole) * PAGE_POSITIONS
            self.before_change(prefix.last)
            del prefix.last.tokens[rest:]
            self.states.drop(prefix.last, beyond=rest)

    def restore(
        self, page: CachedPage, tokens: Sequence[int], data: HostBytes, *, is_partial: bool = False
    ) -> None:
        """Fills a new page with `tokens` and data from disk, without windows if `is_partial`."""
        if not is_partial:
            self.windows.begin(page.page)
        self._runner.memory.write_page(page.page, data, is_partial=is_partial)
        page.tokens[:] = tokens

    def save(self, path: Sequence[CachedPage]) -> None:
        """Saves the pages of an ended text to the prompt cache on disk, if there is one."""
        if self.disk is not None:
            self.disk.save(path, self.windows.has)

    def _save_before_window_drop(self, number: int) -> None:
        page = self._by_number.get(number)
        if page is None or self.disk is None:
            return
        self.disk.queue.copy_or_drop_windows(number)
        if page.is_full and self.windows.is_snapshot(page.index):
            self.disk.save_page(page)
            self.disk.queue.copy_or_drop_windows(number)

    def before_change(self, page: CachedPage) -> None:
        """Copies or drops a page's records that wait to be saved, before it is overwritten."""
        if self.disk is not None:
            self.disk.queue.copy_or_drop_page(page.page)

    def hold(self, page: CachedPage) -> None:
        """Counts one more user of the page, which is not evicted while it has users."""
        self.num_evictable -= page.num_users == 0
        page.num_users += 1

    def release(self, page: CachedPage) -> None:
        """Counts one user of the page less; an unused one may be evicted, and is freed if empty."""
        page.num_users -= 1
        page.last_use = next(self._clock)
        self.num_evictable += page.num_users == 0
        if page.is_evictable and not page.tokens:
            self._remove(page)
        self._queue_for_eviction(page)

    def grow(self, parent: CachedPage | None) -> CachedPage | None:
        """Adds a page after `parent` and holds it; returns None if all pages are in use."""
        taken = self._runner.pages.allocate()
        if taken is None:
            return None
        parent = parent or self.root
        page = CachedPage(taken, parent)
        page.num_users = 1
        parent.children.append(page)
        self._by_number[taken] = page
        return page

    def deduplicate(self, page: CachedPage) -> CachedPage:
        """Returns another page with the same tokens, shared from now on, or the page itself."""
        assert page.parent is not None
        for other in page.parent.children:
            if other is not page and other.tokens == page.tokens:
                self._join(page, other)
                return other
        return page

    def _join(self, page: CachedPage, other: CachedPage) -> None:
        """Moves the page's user, states and following pages to `other`, and frees the page."""
        self.hold(other)
        if self.windows.has(page.page) and not self.windows.has(other.page):
            self.windows.begin(other.page)
            self._runner.memory.copy_page(page.page, other.page)
        for child in page.children:
            child.parent = other
        other.children += page.children
        page.children = []
        self.states.move(page, other)
        page.num_users = 0
        self.num_evictable += 1
        self._remove(page)

    def copy(self, source: CachedPage, length: int, target: CachedPage) -> None:
        self.windows.begin(target.page)
        self._runner.memory.copy_page(source.page, target.page)
        target.tokens[:] = source.tokens[:length]

    def remove_text(self, tokens: Sequence[int]) -> None:
        """Gives back the pages of a text, as far as no request or other text needs them."""
        prefix = self.find(tokens)
        for page in [prefix.last, *reversed(prefix.whole)]:
            if page is not None and page.is_evictable:
                self._remove(page)

    def clear(self) -> None:
        while self._evict():
            pass

    def pages(self) -> Iterator[CachedPage]:
        """Iterates over all pages, each after the page before it."""
        waiting = list(self.root.children)
        while waiting:
            page = waiting.pop()
            yield page
            waiting += page.children

    def _queue_for_eviction(self, page: CachedPage) -> None:
        if page.is_evictable and page.parent is not None:
            heapq.heappush(self._evictable, (page.last_use, next(self._clock), page))

    def _evict(self) -> bool:
        while self._evictable:
            last_use, _, page = heapq.heappop(self._evictable)
            if page.is_evictable and page.parent is not None and page.last_use == last_use:
                parent = page.parent
                self._remove(page)
                self._queue_for_eviction(parent)
                return True
        return False

    def _remove(self, page: CachedPage) -> None:
        assert page.parent is not None
        self.before_change(page)
        self.states.drop(page)
        page.parent.children.remove(page)
        page.parent = None
        del self._by_number[page.page]
        self.windows.drop_page(page.page)
        self._runner.pages.free(page.page)
        self.num_evictable -= 1
