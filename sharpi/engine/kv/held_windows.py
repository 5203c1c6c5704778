"""HeldWindows: the pages that one text holds for layers with sliding windows."""

from collections.abc import Sequence

from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.kv.window_pages import WindowPages
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class HeldWindows:
    """Holds what these layers read for the next tokens; `path` lists the pages of the text."""

    def __init__(self, windows: WindowPages, path: Sequence[CachedPage]) -> None:
        self._windows, self._path = windows, path
        self._held: dict[int, int] = {}  # by index in the path, the page's number
        self._passing = range(0)  # the pages of the step that runs, which are not held

    def hold(self, length: int, end: int) -> None:
        """Holds just those pages that tokens from `length` to `end`, and the next, read.

        A step of many tokens passes by the pages that later tokens do not read.
        """
        self._end_step()
        self._passing = self._windows.passing(length, end)
        wanted = range(self._windows.first_needed(length), -(-end // PAGE_POSITIONS))
        for index in wanted:
            if index not in self._held and index not in self._passing:
                self._hold(index)
        for index in tuple(self._held):
            if index not in wanted or index in self._passing:
                self._windows.let_go(self._held.pop(index))

    def _hold(self, index: int) -> None:
        self._held[index] = self._path[index].page
        self._windows.hold(self._held[index])

    def _end_step(self) -> None:
        for index in self._passing:
            self._windows.pass_by(self._path[index].page)
        self._passing = range(0)

    def replace(self, index: int) -> None:
        """Holds the page that has replaced another one with the same tokens, as far as it did."""
        if index in self._held:
            self._hold(index)

    def release(self) -> None:
        """Holds nothing any more."""
        self._passing = range(0)
        while self._held:
            self._windows.let_go(self._held.popitem()[1])
