"""EvictionOrder: which unused page of the KV cache is evicted next, the least recently used one."""

import heapq
from itertools import count

from sharpi.engine.kv.pages import CachedPage


class EvictionOrder:
    """The pages that were let go, in the order of their last use; entries may be outdated."""

    def __init__(self) -> None:
        self._clock = count(1)
        self._heap: list[tuple[int, int, CachedPage]] = []

    def touch(self, page: CachedPage) -> None:
        """Records that a page has been used just now."""
        page.last_use = next(self._clock)

    def offer(self, page: CachedPage) -> None:
        """Adds a page, if it can go."""
        if page.can_go and page.parent is not None:
            heapq.heappush(self._heap, (page.last_use, next(self._clock), page))

    def take(self) -> CachedPage | None:
        """Takes the page that was not used for the longest time; None if all are in use."""
        while self._heap:
            last_use, _, page = heapq.heappop(self._heap)
            if page.can_go and page.parent is not None and page.last_use == last_use:
                return page
        return None
