"""WindowPages: which pages still have the keys and values of sliding-window layers.

These layers read only the last positions of each text. The memory of their other keys and values
goes back to the system, least recently used pages first. The keys and values of layers with full
attention stay in all pages.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from sharpi.engine.kv.pages import CachedPage
from sharpi.model.config import ModelConfig
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, first_page_read, passing_pages
from sharpi.settings import RunConfig

SNAPSHOT_PAGES = 16  # pages between two snapshots on disk; more with wide windows

# (page, True if the page before it was dropped as well, True if the page after it was)
Drop = Callable[[int, bool, bool], None]


def windows_of(model: ModelConfig) -> dict[int, int]:
    """Returns the window of each layer whose keys and values are only read within windows."""
    readers: dict[int, list[int]] = {shape.layer: [] for shape in model.attention}
    for mixer in (*model.mixers, model.head_mixer):
        if isinstance(mixer, AttentionSettings):
            readers[mixer.shape.layer].append(mixer.shape.window)
    for mixer in model.assistant.mixers if model.assistant else ():
        # A position's window includes itself.
        readers[mixer.shape.layer].append(mixer.shape.window and mixer.shape.window + 1)
    return {layer: max(own) for layer, own in readers.items() if own and all(own)}


def gpu_windows_of(model: ModelConfig) -> dict[int, int]:
    """Returns the windows of the layers that drop pages on a GPU: not of keys that others read."""
    readers = Counter(
        mixer.shape.layer for mixer in model.mixers if isinstance(mixer, AttentionSettings)
    )
    windows = windows_of(model).items()
    return {layer: own for layer, own in windows if not model.is_moe or readers[layer] == 1}


def window_pages(config: RunConfig, model: ModelConfig) -> int:
    """Returns the pages for which sliding-window layers have memory; 0 for all pages."""
    windows = windows_of(model)
    if not windows or model.states:
        return 0
    positions = 2 * max(windows.values()) + config.batch_size
    return config.num_parallel * (-(-positions // PAGE_POSITIONS) + 2)


class WindowPages:
    """Drops the keys and values of sliding-window layers in unused pages, beyond `limit` pages.

    With `limit` 0 all pages keep them. `drop` frees the memory of a page in these layers. `window`:
    the most positions that a token reads, its own included. Steps have up to `batch_size` tokens,
    unless a GPU computes them in batches.
    """

    def __init__(self, window: int, limit: int, drop: Drop, batch_size: int = 1 << 62) -> None:
        self.window, self._limit, self._drop = window, limit, drop
        self._batch_size = batch_size
        self.is_on = limit > 0  # pages are dropped at all
        # Each is called with a page that is about to be dropped.
        self.watchers: list[Callable[[int], None]] = []
        self._present: set[int] = set()
        self._users: Counter[int] = Counter()
        # Present pages without users, least recently used first.
        self._unused: OrderedDict[int, None] = OrderedDict()

    def has(self, page: int) -> bool:
        return not self.is_on or page in self._present

    def first_needed(self, length: int) -> int:
        """Returns the index of the first page that the token at position `length` reads."""
        return first_page_read(length, self.window)

    def passing(self, length: int, end: int) -> range:
        """Returns the indices of pages that only tokens within one long step read.

        The step computes positions `length` to `end`; the range is empty if it fits a batch. No
        text holds these pages. Makes room for a batch of them, since the processors need them while
        the batch is computed.
        """
        if end - length <= self._batch_size:
            return range(0)
        pages = passing_pages(length, end, self.window)
        self.trim(min(len(pages), -(-self._batch_size // PAGE_POSITIONS) + 1))
        return pages

    def drop_passed(self, page: int) -> None:
        """Drops a page that a step has passed, unless a text has begun to use it since."""
        if page not in self._present:
            self._drop(page, page - 1 not in self._present, page + 1 not in self._present)

    def usable(self, pages: Sequence[int], length: int) -> int:
        """Returns the most tokens, up to `length`, after which the next finds its window."""
        return self.usable_of([self.has(page) for page in pages], length)

    def usable_of(self, have_windows: Sequence[bool], length: int) -> int:
        """Does the same as `usable`, given which pages have the keys and values of all layers."""
        while self.is_on and length:
            needed = range(self.first_needed(length), -(-length // PAGE_POSITIONS))
            missing = next((index for index in needed if not have_windows[index]), None)
            if missing is None:
                break
            length = missing * PAGE_POSITIONS
        return length

    def is_snapshot(self, index: int) -> bool:
        """Returns True for pages, a quarter at most, saved before their windows are dropped."""
        count = -(-(self.window - 1) // PAGE_POSITIONS)
        apart = max(SNAPSHOT_PAGES, 4 * count)
        return index % apart >= apart - count

    def begin(self, page: int) -> None:
        """Marks a page that is about to be written as present; it has no users yet."""
        if self.is_on and page not in self._present:
            self._present.add(page)
            self._unused[page] = None

    def hold(self, *pages: int) -> None:
        """Counts one more user of each page, and drops other pages only after that."""
        if not self.is_on:
            return
        for page in pages:
            self._present.add(page)
            self._unused.pop(page, None)
            self._users[page] += 1
        self.trim()

    def release(self, page: int) -> None:
        """Counts one user of a page less; a page without users may then be dropped."""
        if not self.is_on or page not in self._users:
            return
        self._users[page] -= 1
        if not self._users[page]:
            del self._users[page]
            self._unused[page] = None
            self.trim()

    def drop_page(self, page: int) -> None:
        """Drops the keys and values that sliding-window layers have in a page, at once."""
        if page in self._present:
            self._users.pop(page, None)
            self._unused.pop(page, None)
            for watcher in self.watchers:
                watcher(page)
            self._present.discard(page)
            self._drop(page, page - 1 not in self._present, page + 1 not in self._present)

    def trim(self, num_new: int = 0) -> None:
        """Drops windows of the least recently used pages until `num_new` more fit the limit."""
        while len(self._present) + num_new > self._limit and self._unused:
            self.drop_page(next(iter(self._unused)))


class HeldWindows:
    """Keeps the pages of `path` in use that sliding-window layers read for the next tokens."""

    def __init__(self, windows: WindowPages, path: Sequence[CachedPage]) -> None:
        self._windows, self._path = windows, path
        self._held: dict[int, int] = {}  # by index in the path, the page's number
        self._passing: dict[int, int] = {}  # the same, of pages not held in this step

    def hold(self, length: int, end: int) -> None:
        """Holds the pages that a step from `length` to `end` and the next token read, no others."""
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
        self._end_step()
        for page in self._held.values():
            self._windows.release(page)
        self._held.clear()
