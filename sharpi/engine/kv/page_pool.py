"""Which pages of the KV cache are free; every layer's cache has the same pages."""

from collections.abc import Callable, Iterable


class PagePool:
    """Ids of `num_pages` pages, handed out and taken back.

    `reclaim` is asked when there is none: it gives back a page or returns False.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.reclaim: Callable[[], bool] = lambda: False
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Pages that nobody has."""
        return len(self._free)

    def take(self) -> int | None:
        """A free page's id, or None when all are in use."""
        return self._free.pop() if self._free or self.reclaim() else None

    def give_back(self, pages: Iterable[int]) -> None:
        """Returns pages to the pool."""
        self._free.extend(pages)
