"""CutPages: the pages for the KV positions that each head keeps at the cut of a long prompt."""

from collections.abc import Sequence

import numpy as np

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.kv.kv_cut import Cut
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.scheduling.prefix_cache import PrefixCache


class CutPages:
    """Reserves the pages of a cut, at which each head keeps only some KV positions of a prompt.

    `num_dropped` counts the positions that were dropped, 0 before the cut.
    """

    def __init__(self, cache: PrefixCache, cut: Cut) -> None:
        self._cache, self._cut = cache, cut
        self._pages: list[CachedPage] = []
        self.num_dropped = 0

    def findable(self, tokens: Sequence[int]) -> Sequence[int]:
        """Returns the tokens whose pages may come from the prefix cache.

        They end before the window, whose queries choose the positions to keep.
        """
        return tokens[: self._cut.window]

    def is_at(self, length: int) -> bool:
        """Returns True if the cut happens after `length` tokens."""
        return length == self._cut.length

    def reserve(self) -> bool:
        """Reserves the pages of the kept positions; returns False if there are not enough."""
        while len(self._pages) < self._cut.num_pages:
            page = self._cache.grow(self._pages[-1] if self._pages else self._cache.private_root)
            if page is None:
                return False
            self._pages.append(page)
        return True

    @property
    def num_missing(self) -> int:
        """The number of pages that are still to be reserved."""
        return 0 if self.num_dropped else self._cut.num_pages - len(self._pages)

    def next_count(self, length: int, budget: int) -> int:
        """Returns the number of tokens of the next step, at most `budget`.

        The window before the cut has to be one step: the result is 0 if it exceeds the budget.
        """
        rest = self._cut.length - length
        if rest <= 0:
            return budget
        if length < self._cut.window:
            return min(budget, self._cut.window - length)
        return rest if budget >= rest else 0

    def added_to(self, segment: Segment) -> Segment:
        """Returns `segment`, which ends at the cut, with the pages for the kept positions."""
        pages = np.array([page.page for page in self._pages], np.int32)
        return segment._replace(num_kept=self._cut.num_kept, kept_pages=pages)

    def drop(self) -> list[CachedPage]:
        """Records that positions were dropped; returns the pages of the kept positions."""
        self.num_dropped = self._cut.length - self._cut.num_kept
        pages, self._pages = self._pages, []
        return pages

    def may_rewind(self, length: int) -> bool:
        """Returns True if the cut has happened, and a text of `length` tokens would include it.

        The text can then be shortened to `length` with the pages that it has.
        """
        return self.num_dropped > 0 and length >= self._cut.length

    def release(self) -> None:
        """Gives back the reserved pages if the cut has not used them."""
        while self._pages:
            self._cache.release(self._pages.pop())
