"""HeldWindows: the pages that one text keeps in use for its sliding-window layers."""

from collections.abc import Iterable, Sequence

from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.kv.window_pages import WindowPages
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class HeldWindows:
    """Keeps the pages in use that sliding-window layers read for a text's next tokens.

    `path` lists the pages of the text.
    """

    def __init__(self, windows: WindowPages, path: Sequence[CachedPage]) -> None:
        self._windows, self._path = windows, path
        self._held: dict[int, int] = {}  # by index in the path, the page's number
        self._passing: dict[int, int] = {}  # the same, of pages not held in this step

    def hold(self, length: int, end: int) -> None:
        """Holds only the pages that a step from `length` to `end` and the next token read.

        In a step of more tokens than a batch, pages that only tokens of that step read are not
        held.
        """
        self._end_step()
        passing = self._windows.passing(length, end)
        self._passing = {index: self._path[index].page for index in passing}
        wanted = range(self._windows.first_needed(length), -(-end // PAGE_POSITIONS))
        self._hold(i for i in wanted if i not in self._held and i not in self._passing)
        for index in tuple(self._held):
            if index not in wanted or index in self._passing:
                self._windows.release(self._held.pop(index))

    def _hold(self, indices: Iterable[int]) -> None:
        pages = {index: self._path[index].page for index in indices}
        self._held |= pages
        self._windows.hold(*pages.values())

    def _end_step(self) -> None:
        for page in self._passing.values():
            self._windows.drop_passed(page)
        self._passing.clear()

    def replace(self, index: int) -> None:
        """Holds the page that has just replaced another one in `path`, if that one was held."""
        if index in self._held:
            self._hold((index,))

    def release(self) -> None:
        """Releases all held pages."""
        self._end_step()
        for page in self._held.values():
            self._windows.release(page)
        self._held.clear()
