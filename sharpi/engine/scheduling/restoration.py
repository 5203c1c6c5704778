"""Restoration: reads the pages of a text's beginning from disk into the prefix cache."""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from sharpi.engine.backends.model_part import HostBytes
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.prompt_cache.record import Record, page_links
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
    """Yields, for each page, if memory or disk has it with its sliding-window layers."""
    for number, link in enumerate(text.links[:-1]):
        own = text.links[number + 1]
        if text.has_windows(number) or text.disk.has_page(link, own):
            yield True
        elif text.is_known(number) or text.disk.has_page(link, own, is_partial=True):
            yield False
        else:
            return


def _record(text: Beginning, number: int, length: int) -> Record | None:
    """Returns the record to read for whole page `number`; None if memory has enough of it."""
    is_in_window = number >= text.cache.windows.first_needed(length)
    if text.is_known(number) and (not is_in_window or text.has_windows(number)):
        return None
    links = text.links[number], text.links[number + 1]
    is_partial = not is_in_window and text.disk.has_page(*links, is_partial=True)
    return text.record(number, PAGE_POSITIONS, is_partial=is_partial)


def restoration(cache: PrefixCache, tokens: Sequence[int]) -> Generator[int, None, None]:
    """Reads a text's beginning from disk, yielding bytes as pages come; may be closed any time."""
    disk = cache.disk
    if disk is None or not disk.refresh():
        return
    is_whole = False
    while not is_whole:  # what cannot be used is not tried again
        is_whole = yield from _restored(cache, disk, tokens)


def _restored(
    cache: PrefixCache, disk: PromptCache, tokens: Sequence[int]
) -> Generator[int, None, bool]:
    """Reads the longest beginning of `tokens` on disk, and yields the bytes of each record."""
    text = Beginning(cache, disk, tokens, cache.find(tokens), page_links(tokens))
    plan = plan_with_windows(text) if cache.windows.is_on else _plan(text)
    if not plan:
        return True
    held = text.known.whole[: plan[-1].position // PAGE_POSITIONS]
    for shared in held:
        cache.hold(shared)
    num_read = 0
    try:
        for record, data in disk.read(plan):
            number = record.position // PAGE_POSITIONS
            page = place(cache, held[number - 1] if number else cache.root, record, data)
            if page is None:
                return True
            num_read += 1
            if number < len(held):  # it was known, without its windows
                cache.release(page)
            else:
                held.append(page)
            cache.windows.trim()
            yield record.num_bytes
        return num_read == len(plan)
    finally:
        for placed in reversed(held):
            cache.release(placed)


def _plan(text: Beginning) -> list[Record]:
    """Lists the records to read: whole pages, then the last page if it extends the prefix."""
    cache, disk, _, known, links = text
    first = reach = len(known.whole)
    while reach + 1 < len(links) and disk.has_page(links[reach], links[reach + 1]):
        reach += 1
    last = reach
    has_states = cache.states.are_needed
    count = disk.longest(links[last], text.page_tokens(last), has_state=has_states)
    while has_states and not count and last > 0:
        last -= 1
        count = disk.longest(links[last], text.page_tokens(last), has_state=True)
    is_known = cache.cut_to_state(known, text.tokens).length if has_states else known.length
    if last * PAGE_POSITIONS + count <= is_known:
        return []
    spans = [(number, PAGE_POSITIONS) for number in range(first, last)]
    if count and (has_states or last * PAGE_POSITIONS + count > known.length):
        spans.append((last, count))
    return [
        text.record(number, length, has_state=has_states and number == last)
        for number, length in spans
    ]


def place(
    cache: PrefixCache, parent: CachedPage, record: Record, data: HostBytes
) -> CachedPage | None:
    """Holds a record's page after its parent, filled from `data` as needed; None without room."""
    page, same = parent.best_child(list(record.tokens))
    is_known = page is not None and same == len(record.tokens)
    if page is not None and is_known:
        cache.hold(page)
    else:
        page = cache.grow(None if parent is cache.root else parent)
    if page is None:
        return None
    lacks_windows = same == len(page.tokens) and not cache.windows.has(page.page)
    if not is_known or (lacks_windows and not record.is_partial):
        own = data[: record.page_bytes]
        cache.restore(page, record.tokens, own, is_partial=record.is_partial)
    if record.state_bytes:
        cache.states.restore(page, len(record.tokens), data[record.page_bytes :])
    return page
