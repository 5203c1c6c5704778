"""Restoration: reads the pages of a text's beginning from disk into the prefix cache."""

from collections.abc import Generator, Sequence

from sharpi.engine.backends.model_part import HostBytes
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.prompt_cache.record import Record
from sharpi.engine.prompt_cache.token_chain import page_links
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.window_restoration import Beginning, plan_with_windows
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


def restoration(cache: PrefixCache, tokens: Sequence[int]) -> Generator[int, None, None]:
    """Reads the pages of the beginning of `tokens` that are on disk but not in memory.

    Yields the bytes of each record once its page is in the prefix cache. The caller may do other
    work meanwhile, and close the iterator at any time.
    """
    disk = cache.disk
    if disk is None or not disk.refresh():
        return
    is_whole = False
    while not is_whole:  # what cannot be used is not tried again
        is_whole = yield from _restored(cache, disk, tokens)


def _restored(
    cache: PrefixCache, disk: PromptCache, tokens: Sequence[int]
) -> Generator[int, None, bool]:
    """Reads the longest beginning of `tokens` on disk, and yields the bytes of each record.

    Returns False if a record could not be used.
    """
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
    """Puts a record's page after its parent and holds it; returns None if there is no room.

    If the page is in memory, only keys and values that its sliding-window layers have dropped are
    restored.
    """
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
