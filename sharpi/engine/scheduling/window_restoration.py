"""Chooses the records to read where sliding-window layers keep only the ends of texts.

A text can be continued where these layers have all positions that its next token reads. Records on
disk have them at the end of each text that was saved, and at snapshots. For the pages before,
partial records are enough.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.prompt_cache.record import Record
from sharpi.engine.scheduling.prefix_cache import Prefix, PrefixCache
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class Beginning(NamedTuple):
    """The beginning of a text to be restored, the part that memory has, and the pages' links.

    `links` (pages + 1) has the link before the first page, then the one after each whole page.
    """

    cache: PrefixCache
    disk: PromptCache
    tokens: Sequence[int]
    known: Prefix
    links: list[bytes]

    def page_tokens(self, number: int) -> Sequence[int]:
        """Returns the tokens of page `number`, fewer at the end of the text."""
        return self.tokens[number * PAGE_POSITIONS : (number + 1) * PAGE_POSITIONS]

    def is_known(self, number: int) -> bool:
        """Returns True if memory has the whole page, perhaps without its sliding-window layers."""
        return number < len(self.known.whole)

    def has_windows(self, number: int) -> bool:
        """Returns True if memory has the whole page, sliding-window layers included."""
        return self.is_known(number) and self.cache.windows.has(self.known.whole[number].page)

    def record(
        self, number: int, length: int, *, has_state: bool = False, is_partial: bool = False
    ) -> Record:
        """Returns the header of the record on disk with the first `length` tokens of a page."""
        return self.disk.record(
            self.links[number],
            number * PAGE_POSITIONS,
            self.page_tokens(number)[:length],
            has_state=has_state,
            is_partial=is_partial,
        )


def plan_with_windows(text: Beginning) -> list[Record]:
    """Lists the records that extend the usable prefix most, in order; empty if none does."""
    cache, known = text.cache, text.known
    have_windows = list(_have_windows(text))
    whole = len(have_windows)
    of_last = known.length - whole * PAGE_POSITIONS if whole == len(known.whole) else 0
    count = text.disk.longest(text.links[whole], text.page_tokens(whole), has_state=False)
    if count > of_last:
        have_windows.append(True)
    elif of_last and known.last is not None:
        count = 0
        have_windows.append(cache.windows.has(known.last.page))
    usable = cache.windows.usable_of(have_windows, whole * PAGE_POSITIONS + max(count, of_last))
    if usable <= cache.cut_to_windows(known).length:
        return []
    numbers = range(min(whole, usable // PAGE_POSITIONS))
    plan = [_record(text, number, usable) for number in numbers]
    if count and usable > whole * PAGE_POSITIONS:
        plan.append(text.record(whole, count))
    return [record for record in plan if record is not None]


def _have_windows(text: Beginning) -> Iterator[bool]:
    """Yields, for each page, if memory or disk has it with its sliding-window layers.

    Stops at the first page that is neither in memory nor on disk.
    """
    for number, link in enumerate(text.links[:-1]):
        own = text.links[number + 1]
        if text.has_windows(number) or text.disk.has_page(link, own):
            yield True
        elif text.is_known(number) or text.disk.has_partial(link, own):
            yield False
        else:
            return


def _record(text: Beginning, number: int, length: int) -> Record | None:
    """Returns the record to read for whole page `number`; None if memory has enough of it.

    A page in the window of position `length` also needs its keys and values of sliding-window
    layers.
    """
    is_in_window = number >= text.cache.windows.first_needed(length)
    if text.is_known(number) and (not is_in_window or text.has_windows(number)):
        return None
    links = text.links[number], text.links[number + 1]
    is_partial = not is_in_window and text.disk.has_partial(*links)
    return text.record(number, PAGE_POSITIONS, is_partial=is_partial)
