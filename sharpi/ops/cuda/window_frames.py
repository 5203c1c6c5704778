"""WindowFrames: assigns memory to the KV pages of a GPU's layers with sliding windows.

These layers have memory for a few pages only, called frames. A page gets a frame when a step is
about to write it, and loses the frame when it is dropped. So these layers have a separate page
table, which lists frames.
"""

from collections.abc import Collection

from msgspec import Struct, field

from sharpi.errors import DeviceError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, first_page_read, passing_pages
from sharpi.ops.cpu.program import IntArray

# Frames beyond the pages that `WindowPages` keeps: a page is copied before the old one is dropped.
SPARE_FRAMES = 4


class WindowFrames(Struct):
    """The frames of the sliding-window layers `layers`, whose window is `window` positions.

    In a step of more than `batch_size` tokens, a page that no token after the step reads loses its
    frame as soon as a batch starts whose window is past the page.
    """

    layers: Collection[int]
    window: int
    num_frames: int
    batch_size: int
    _frames: dict[int, int] = field(default_factory=dict)  # by page
    _free: list[int] = field(default_factory=list)
    _passing: dict[int, int] = field(default_factory=dict)  # by page, its index in the page table

    def __post_init__(self) -> None:
        self._free = list(range(self.num_frames - 1, -1, -1))

    def find(self, page: int) -> int | None:
        """Returns the frame of a page; None if it has none."""
        return self._frames.get(page)

    def take(self, page: int) -> int:
        """Returns the frame of a page, and assigns one if it has none.

        Raises DeviceError if no frame is free.
        """
        self._passing.pop(page, None)
        return self._taken(page)

    def _taken(self, page: int) -> int:
        if page not in self._frames:
            if not self._free:
                raise DeviceError("all pages of sliding-window layers are in use; lower -b or -np")
            self._frames[page] = self._free.pop()
        return self._frames[page]

    def drop(self, page: int) -> None:
        """Frees the frame of a page, if it has one."""
        self._passing.pop(page, None)
        frame = self._frames.pop(page, None)
        if frame is not None:
            self._free.append(frame)

    def begin(self, position: int, end: int, pages: IntArray) -> None:
        """Prepares a step that computes tokens `position` up to `end` of one sequence.

        `pages` is the sequence's page table.
        """
        for page in tuple(self._passing):
            self.drop(page)
        if end - position > self.batch_size:
            indices = passing_pages(position, end, self.window)
            self._passing = {int(pages[index]): index for index in indices}

    def write(self, table: IntArray, position: int, end: int, pages: IntArray) -> None:
        """Writes to `table` the frames of all pages that tokens `position` up to `end` use.

        `pages` is the sequence's page table; both are (pages,). Other entries do not change.
        """
        first = first_page_read(position, self.window)
        for page in [page for page, index in self._passing.items() if index < first]:
            self.drop(page)
        last = -(-end // PAGE_POSITIONS)
        table[first:last] = [self._taken(page) for page in pages[first:last].tolist()]
