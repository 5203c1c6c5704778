"""Which pages of the KV cache are free; every layer's cache has the same pages."""

from collections.abc import Iterable


class PagePool:
    """Ids of `num_pages` pages, handed out and taken back."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))

    def take(self) -> int | None:
        """A free page's id, or None when all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, pages: Iterable[int]) -> None:
        """Returns pages to the pool."""
        self._free.extend(pages)
