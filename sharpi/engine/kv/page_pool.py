"""Which pages of the KV cache are free; every layer's cache has the same pages."""

from collections.abc import Callable, Iterable


class PagePool:
    """Hands out the ids of `num_pages` pages and takes them back.

    `reclaimers` are asked in turn when no page is free: each returns a page that it kept only
    because there was room, and says whether it did.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.reclaimers: list[Callable[[], bool]] = []
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Pages that are handed to no one."""
        return len(self._free)

    def take(self) -> int | None:
        """Hands out a free page's id; None when all are in use."""
        if self._free or any(reclaim() for reclaim in self.reclaimers):
            return self._free.pop()
        return None

    def give_back(self, pages: Iterable[int]) -> None:
        """Returns pages to the pool."""
        self._free.extend(pages)
