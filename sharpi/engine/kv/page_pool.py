"""PagePool: the free pages of the KV cache; a page has the same id in every layer."""

from collections.abc import Callable, Iterable


class PagePool:
    """Hands out the ids of `num_pages` pages and takes them back.

    `reclaimers` are called in turn when no page is free. Each may give back a page that is only
    cached, and returns True if it did.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.reclaimers: list[Callable[[], bool]] = []
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """The number of free pages."""
        return len(self._free)

    def take(self) -> int | None:
        """Hands out a free page's id; None when all are in use."""
        if self._free or any(reclaim() for reclaim in self.reclaimers):
            return self._free.pop()
        return None

    def give_back(self, pages: Iterable[int]) -> None:
        """Returns pages to the pool."""
        self._free.extend(pages)
