"""PromptStash: keeps the intermediate values of a prompt's batches while other batches run.

A page holds adjacent tokens. The first pages are on the GPU, the others in page-locked memory. One
prompt at a time uses the pages in order, so that adjacent tokens are copied together.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span


class StashSizes(Struct, frozen=True):
    """The sizes of a stash: its page size and numbers of pages."""

    max_tokens: int  # the most tokens of a prompt
    page_tokens: int
    gpu_pages: int
    host_pages: int = 0  # pages in page-locked memory

    def holds(self, tokens: int) -> bool:
        """Returns True if there are pages for `tokens` tokens."""
        pages = -(-tokens // self.page_tokens)
        return tokens <= self.max_tokens and pages <= self.gpu_pages + self.host_pages

    def spilled_pages(self, tokens: int) -> int:
        """Returns the number of pages in RAM that `tokens` tokens use."""
        return max(0, -(-tokens // self.page_tokens) - self.gpu_pages)


class PromptStash:
    """The memory of a stash, divided into arrays with one row per token.

    Array i stores one intermediate value, in rows of `array_bytes[i]` bytes.
    """

    def __init__(self, device: Device, array_bytes: Sequence[int], sizes: StashSizes) -> None:
        self.sizes = sizes
        self._array_bytes = tuple(array_bytes)
        self._gpu_tokens = sizes.gpu_pages * sizes.page_tokens
        self._host_tokens = sizes.host_pages * sizes.page_tokens
        size = sum(array_bytes) * self._gpu_tokens
        self._gpu = Span(device.allocate(size), 0, size)
        self._host = self._gpu.part(0, 0)
        if sizes.host_pages:
            size = sum(array_bytes) * self._host_tokens
            self._host = Span(device.mapped(size)[0], 0, size)

    def row_pairs(
        self, array: int, first: int, rows: Span, row_bytes: int
    ) -> Iterator[tuple[Span, Span]]:
        """Yields pairs of spans, between which rows are copied: part of `rows`, part of the array.

        `rows` belong to the tokens from `first` on. There are two pairs if some of these tokens are
        in GPU pages and others in host pages.
        """
        count = rows.num_bytes // row_bytes
        on_gpu = min(count, max(0, self._gpu_tokens - first))
        parts = (
            (self._gpu, self._gpu_tokens, first, 0, on_gpu),
            (self._host, self._host_tokens, first + on_gpu - self._gpu_tokens, on_gpu, count),
        )
        for pool, tokens, token, begin, end in parts:
            if begin < end:
                size = (end - begin) * row_bytes
                at = sum(self._array_bytes[:array]) * tokens + token * self._array_bytes[array]
                yield rows.part(begin * row_bytes, size), pool.part(at, size)
